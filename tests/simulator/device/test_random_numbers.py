"""Seeds, generators and their states: the same seed gives the same numbers, and a state restores them."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def test_a_seed_of_all_devices_seeds_this_one():
    torch.manual_seed(7)
    first = torch.randn(5, device="mps")
    torch.manual_seed(7)
    assert torch.equal(torch.randn(5, device="mps"), first)
    torch.mps.manual_seed(7)
    assert torch.equal(torch.randn(5, device="mps"), first)
    torch.mps.seed()
    assert not torch.equal(torch.randn(5, device="mps"), first)


def test_the_device_and_the_cpu_draw_from_different_generators():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    torch.rand(100, device="mps")
    assert torch.equal(torch.rand(3), expected)


def test_a_state_restores_the_numbers_after_it():
    state = torch.mps.get_rng_state()
    expected = torch.rand(5, device="mps")
    torch.mps.set_rng_state(state)
    assert torch.equal(torch.rand(5, device="mps"), expected)


def test_fork_rng_leaves_the_device_as_it_was():
    state = torch.mps.get_rng_state()
    with torch.random.fork_rng(device_type="mps"):
        torch.rand(5, device="mps")
    assert torch.equal(torch.mps.get_rng_state(), state)


def test_own_generators():
    def draw(seed):
        generator = torch.Generator(device="mps").manual_seed(seed)
        assert generator.device == torch.device("mps:0")
        assert generator.initial_seed() == seed
        return torch.randint(1000, (8,), device="mps", generator=generator)

    assert torch.equal(draw(3), draw(3))
    assert not torch.equal(draw(3), draw(4))
    generator = torch.Generator(device="mps").manual_seed(1)
    copy = generator.clone_state()
    assert torch.equal(
        torch.randperm(9, device="mps", generator=generator), torch.randperm(9, device="mps", generator=copy)
    )


def test_operators_that_draw_by_themselves_use_the_generator_of_the_device():
    def draws():
        torch.manual_seed(1)
        x = torch.full((64,), 0.5, device="mps")
        return [
            F.dropout(x, 0.5),
            x.bernoulli(),
            torch.empty(4, device="mps").normal_(),
            torch.multinomial(x, 3),
            torch.rand_like(x),
            torch.nn.init.trunc_normal_(torch.empty(3, device="mps")),
        ]

    for first, second in zip(draws(), draws(), strict=True):
        assert torch.equal(first, second)
