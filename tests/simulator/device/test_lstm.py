"""An LSTM is one operator with its own backward, as on a build with MPS, and computes what the CPU's does."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from .test_composite_dispatch import Calls

FORWARD, BACKWARD = "aten._lstm_mps.default", "aten.lstm_mps_backward.default"
SIZE, HIDDEN, BATCH, STEPS = 4, 6, 3, 5


def lstm_pair(**options) -> tuple[nn.LSTM, nn.LSTM]:
    """The same weights on the CPU and on the device."""
    here = nn.LSTM(SIZE, HIDDEN, **options)
    there = nn.LSTM(SIZE, HIDDEN, **options).to("mps")
    there.load_state_dict(here.state_dict())
    return here, there


def results(lstm: nn.LSTM, inputs: list[Tensor], device: str) -> list[Tensor]:
    """Outputs, last states, and the gradients of inputs, states and weights."""
    torch.manual_seed(7)  # of the dropout
    x, h, c = (tensor.clone().to(device).requires_grad_() for tensor in inputs)
    output, (hidden, cell) = lstm(x, (h, c))
    slopes = torch.linspace(0, 1, output.numel(), device=device).view(output.shape)
    ((output * slopes).sum() + hidden.sin().sum() + cell.cos().sum()).backward()
    return [output, hidden, cell, x.grad, h.grad, c.grad, *(weight.grad for weight in lstm.parameters())]


@pytest.mark.parametrize(
    ("layers", "bidirectional", "bias", "dropout"),
    list(itertools.product([1, 3], [False, True], [False, True], [0, 0.5])),
)
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.filterwarnings("ignore:dropout option")
def test_values_and_gradients(layers, bidirectional, bias, dropout, batch_first):
    options = {"bidirectional": bidirectional, "bias": bias, "dropout": dropout, "batch_first": batch_first}
    here, there = lstm_pair(num_layers=layers, **options)
    shape = (BATCH, STEPS) if batch_first else (STEPS, BATCH)
    inputs = [torch.randn(*shape, SIZE), *torch.randn(2, layers * (1 + bidirectional), BATCH, HIDDEN)]
    for got, wanted in zip(results(there, inputs, "mps"), results(here, inputs, "cpu"), strict=True):
        assert got.is_mps
        assert got.is_contiguous()
        torch.testing.assert_close(got.detach().cpu(), wanted.detach(), atol=1e-5, rtol=1e-5)


# With weights of zero the layers' outputs are zero, dropped or not: the mask must not be read from zeros.
def test_the_gradient_through_dropout_of_an_output_that_is_zero():
    here, there = lstm_pair(num_layers=2, dropout=0.5)
    for lstm in (here, there):
        with torch.no_grad():
            for name, weight in lstm.named_parameters():
                if "l0" in name:
                    weight.zero_()
    inputs = [torch.randn(STEPS, BATCH, SIZE), *torch.zeros(2, 2, BATCH, HIDDEN)]
    for got, wanted in zip(results(there, inputs, "mps"), results(here, inputs, "cpu"), strict=True):
        torch.testing.assert_close(got.detach().cpu(), wanted.detach(), atol=1e-5, rtol=1e-5)


def test_the_gradient_of_the_last_state_alone():
    here, there = lstm_pair(bidirectional=True)
    x = torch.randn(STEPS, BATCH, SIZE)
    for lstm, batch in ((here, x), (there, x.to("mps"))):
        lstm(batch)[1][0].sum().backward()
    torch.testing.assert_close(there.weight_hh_l0_reverse.grad.cpu(), here.weight_hh_l0_reverse.grad)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_floats_stay_short(dtype):
    here, there = lstm_pair()
    x = torch.randn(STEPS, BATCH, SIZE)
    output, (hidden, _) = there.to(dtype)(x.to("mps", dtype))
    assert output.dtype == hidden.dtype == dtype
    torch.testing.assert_close(output.cpu().float(), here(x)[0], atol=0.02, rtol=0.02)  # bfloat16 has 8 bits


def test_autocast_leaves_an_lstm_alone():
    _, there = lstm_pair()
    with torch.autocast("mps", torch.float16):
        assert there(torch.randn(STEPS, BATCH, SIZE, device="mps"))[0].dtype == torch.float32


def test_the_traced_graph_holds_the_operators_of_an_mps_build():
    _, there = lstm_pair(num_layers=2)
    state = torch.zeros(2, BATCH, HIDDEN, device="mps")

    def gradient(x, state, weights):
        output, _, _ = torch.lstm(x, (state, state), weights, True, 2, 0.0, True, False, False)
        return torch.autograd.grad(output.sum(), x)

    x = torch.randn(STEPS, BATCH, SIZE, device="mps", requires_grad=True)
    for mode in ("real", "fake"):
        graph = make_fx(gradient, tracing_mode=mode)(x, state, list(there.parameters()))
        assert {FORWARD, BACKWARD} <= {str(node.target) for node in graph.graph.nodes}


def test_the_workspaces_have_the_shapes_of_a_real_build():
    _, there = lstm_pair(num_layers=3, bidirectional=True)
    x, state = torch.randn(STEPS, BATCH, SIZE, device="mps"), torch.zeros(6, BATCH, HIDDEN, device="mps")
    found = torch.ops.aten._lstm_mps(x, [state, state], list(there.parameters()), True, 3, 0.0, False, True, False)
    assert [tuple(t.shape) for t in found[3:]] == [(3, 5, 3, 48), (3, 5, 3, 12), (2, 5, 3, 12)]


@pytest.mark.parametrize("allowed", [False, True])
def test_a_compiled_lstm(allowed):
    _, there = lstm_pair()
    x = torch.randn(STEPS, BATCH, SIZE, device="mps")
    with torch._dynamo.config.patch(allow_rnn=allowed):
        torch.testing.assert_close(torch.compile(there)(x)[0], there(x)[0], atol=1e-5, rtol=1e-5)


def test_packed_sequences_and_the_cpu_take_plain_operators():
    here, there = lstm_pair(batch_first=True)
    x = torch.randn(BATCH, STEPS, SIZE)
    outputs = []
    for lstm, device in ((there, "mps"), (here, "cpu")):
        packed = nn.utils.rnn.pack_padded_sequence(x.to(device), [5, 4, 2], batch_first=True)
        with Calls() as calls:
            outputs.append(lstm(packed)[0].data)
        assert FORWARD not in calls.names
    torch.testing.assert_close(outputs[0].cpu(), outputs[1])
    with Calls() as calls:
        here(x)
    assert FORWARD not in calls.names


def test_what_a_real_build_refuses():
    x = torch.randn(STEPS, BATCH, SIZE, device="mps")
    with pytest.raises(RuntimeError, match="LSTM with projections is not currently supported with MPS"):
        nn.LSTM(SIZE, HIDDEN, proj_size=3).to("mps")(x)
    _, there = lstm_pair()
    with pytest.raises(RuntimeError, match="same device"):
        there(x, tuple(torch.zeros(2, 1, BATCH, HIDDEN)))
    state = torch.zeros(1, BATCH, HIDDEN, device="mps")
    with pytest.raises(RuntimeError, match="4 weights expected, got 3"):
        torch.lstm(x, (state, state), list(there.parameters())[:3], True, 1, 0.0, False, False, False)
    leaf = x.requires_grad_()
    (grad,) = torch.autograd.grad(there(leaf)[0].sum(), leaf, create_graph=True)
    with pytest.raises(RuntimeError, match="lstm_mps_backward is not implemented"):
        grad.sum().backward()


# GRU and RNN have no operator for MPS in these versions.
@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN])
def test_other_recurrent_layers_are_plain_operators(kind):
    here, x = kind(SIZE, HIDDEN, 2, bidirectional=True), torch.randn(STEPS, BATCH, SIZE)
    wanted = here(x)[0]
    torch.testing.assert_close(here.to("mps")(x.to("mps"))[0].cpu(), wanted, atol=1e-5, rtol=1e-5)
