"""Faults in the demo's text, vocabulary or windows would make its two runs train on different things."""

from __future__ import annotations

from importlib import resources

import pytest
import torch

from inductor_mps_attention.demo.text import Vocabulary, load_text, random_windows


def test_shipped_text_is_plain_ascii_without_carriage_returns_tabs_or_licence():
    text = load_text()
    assert 100_000 <= len(text) <= 200_000
    assert text.isascii()
    assert {character for character in text if not character.isprintable()} == {"\n"}
    assert "ALICE'S ADVENTURES IN WONDERLAND" in text[:200]
    assert text.rstrip().endswith("THE END")
    assert "gutenberg" not in text.lower()
    assert "copyright" not in text.lower()


def test_source_of_the_text_ships_beside_it():
    readme = resources.files("inductor_mps_attention.demo").joinpath("data/README.md").read_text()
    assert "Lewis Carroll" in readme
    assert "public domain" in readme


def test_text_survives_a_round_trip_through_tokens():
    text = load_text()
    vocabulary = Vocabulary.of(text)
    tokens = vocabulary.encode(text)
    assert tokens.dtype == torch.int64
    assert (tokens.min().item(), tokens.max().item()) == (0, len(vocabulary) - 1)
    assert vocabulary.decode(tokens) == text


def test_vocabulary_is_sorted_and_without_repeats():
    assert Vocabulary.of("banana\n").characters == "\nabn"


def test_unknown_character_is_named_and_not_replaced():
    with pytest.raises(ValueError, match="has 2 characters, 'z' is not one of them"):
        Vocabulary.of("ab").encode("abz")


def test_targets_are_the_inputs_one_character_later():
    tokens = torch.arange(50)
    inputs, targets = random_windows(tokens, batch=5, length=8, seed=3)
    assert inputs.shape == targets.shape == (5, 8)
    assert torch.equal(targets, inputs + 1)
    assert inputs.is_contiguous()
    assert targets.is_contiguous()


def test_windows_depend_on_the_seed_alone():
    tokens = torch.arange(1000)
    first, _ = random_windows(tokens, batch=4, length=16, seed=1)
    torch.manual_seed(99)
    again, _ = random_windows(tokens, batch=4, length=16, seed=1)
    other, _ = random_windows(tokens, batch=4, length=16, seed=2)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_last_window_of_the_text_can_be_drawn():
    inputs, targets = random_windows(torch.arange(9), batch=2, length=8, seed=0)
    assert inputs.tolist() == [list(range(8))] * 2
    assert targets.tolist() == [list(range(1, 9))] * 2


def test_text_shorter_than_a_window_is_refused_with_both_lengths():
    with pytest.raises(ValueError, match="a window of 8 needs 9 tokens, got 8"):
        random_windows(torch.arange(8), batch=1, length=8, seed=0)
