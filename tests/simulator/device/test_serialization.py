"""Saving and loading, pickling, copying, and raw storages."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from torch import nn

from inductor_mps_attention import simulator


@pytest.mark.parametrize("where", ["mps", "cpu", None])
@pytest.mark.parametrize("weights_only", [True, False])
def test_a_saved_model_loads_where_it_is_told(where, weights_only):
    model, file = nn.Linear(3, 3).to("mps"), io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    weight = torch.load(file, map_location=where, weights_only=weights_only)["weight"]
    assert weight.device.type == (where or "mps")
    assert torch.equal(weight.cpu(), model.weight.detach().cpu())


def test_views_of_one_storage_stay_views_of_one_storage():
    base, file = torch.arange(6.0, device="mps"), io.BytesIO()
    torch.save([base[:4], base[2:]], file)
    file.seek(0)
    first, second = torch.load(file)
    first[3] = 9
    assert second.tolist() == [2, 9, 4, 5]


def test_pickle_and_deepcopy_stay_on_the_device():
    x = torch.ones(2, device="mps", requires_grad=True)
    assert pickle.loads(pickle.dumps(x)).is_mps
    twin = copy.deepcopy(nn.Linear(3, 3).to("mps"))
    assert twin.weight.is_mps
    generator = torch.Generator(device="mps")
    assert generator.get_state().numel() > 0


def test_an_optimizer_state_survives():
    model, file = nn.Linear(2, 2).to("mps"), io.BytesIO()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2, device="mps")).sum().backward()
    optimizer.step()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    fresh = torch.optim.Adam(model.parameters())
    fresh.load_state_dict(torch.load(file))
    assert fresh.state[model.weight]["exp_avg"].is_mps


def test_a_storage_of_the_device():
    storage = torch.UntypedStorage(8, device="mps")
    assert storage.device.type == "mps"
    assert storage.nbytes() == 8
    storage.fill_(3)
    storage.resize_(16)
    assert storage.nbytes() == 16
    assert storage[7] == 3
    assert torch.UntypedStorage(device=torch.device("mps")).nbytes() == 0
    assert torch.UntypedStorage([1, 2], device="mps").tolist() == [1, 2]
    assert torch.ones(2, device="mps").untyped_storage().cpu().device.type == "cpu"


def test_storages_of_other_devices_are_as_before():
    assert torch.UntypedStorage(8).resize_(4).nbytes() == 4
    assert torch.UntypedStorage(8, device="meta").device.type == "meta"
    assert torch.UntypedStorage([1, 2]).tolist() == [1, 2]


def test_the_host_alias_is_the_same_memory_and_keeps_it_alive():
    x = torch.zeros(4, dtype=torch.uint8, device="mps")
    alias = torch.mps._host_alias_storage(x.untyped_storage())
    assert alias.device.type == "cpu"
    alias.fill_(7)
    assert x.tolist() == [7] * 4
    del x
    assert alias.tolist() == [7] * 4


def test_a_compiled_metal_library_is_refused_by_name():
    with pytest.raises(simulator.SimulatorError, match="metallib"):
        torch.mps.load_metallib(b"MTLB")
