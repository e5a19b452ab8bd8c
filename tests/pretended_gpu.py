"""A GPU that is not there: tensors that say they are on `cuda` and are computed on the CPU.

Inside `pretended_gpu()` torch does what it does with a GPU in the machine, its complaints included: an operation
on tensors of both devices, a generator of the other device, or `.numpy()` of a tensor on the GPU is an error. So
is what the GPU has no kernel for: products of integers, histograms. The numbers are those of the CPU, bit by bit.

What it does not show: numbers that a GPU rounds otherwise, its streams and its memory; and `foreach` optimizers,
which torch takes for its own tensor class only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any, ClassVar
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

_aten = torch.ops.aten
_INDEXING = {_aten.index, _aten.index_put, _aten.index_put_, _aten._index_put_impl_, _aten._unsafe_index}
_COPYING = {_aten.copy_, _aten._to_copy, _aten._foreach_copy_}
_TAKES_HOST_SCALARS = {_aten.fill_, _aten.fill, _aten.masked_fill, _aten.masked_fill_, _aten.where}


class OnGpu(Tensor):
    """A tensor that says it is on the GPU. `host` holds its numbers."""

    host: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, host: Tensor, requires_grad: bool = False) -> OnGpu:
        # To torch's C++ it is a tensor without numbers: autograd asks nothing of a GPU's runtime then.
        made = Tensor._make_wrapper_subclass(
            cls,
            host.shape,
            strides=host.stride(),
            storage_offset=host.storage_offset(),
            dtype=host.dtype,
            device="meta",
            requires_grad=requires_grad,
        )
        made.host = host
        return made

    device = property(lambda self: torch.device("cuda", 0))
    is_cuda = property(lambda self: True)
    is_cpu = is_meta = property(lambda self: False)

    @property
    def data(self) -> Tensor:
        return Tensor.data.__get__(self)

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, OnGpu):
            raise RuntimeError("the pretended GPU cannot move a tensor by its data")
        Tensor.data.__set__(self, value)
        self.host = value.host

    def get_device(self) -> int:
        return 0

    def numpy(self, *, force: bool = False) -> Any:
        if force:
            return self.detach().cpu().numpy()
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor first."
        )

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.numpy()

    def tolist(self) -> Any:
        return self.cpu().tolist()

    # What C++ makes of Python numbers for a tensor without numbers has none either.
    def new_tensor(self, data: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
        return torch.tensor(data, dtype=dtype or self.dtype, device=device or self.device)

    def __getitem__(self, index: Any) -> Tensor:
        return super().__getitem__(_listed(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(_listed(index), value)

    def data_ptr(self) -> int:
        return self.host.data_ptr()

    def to(self, *args: Any, **options: Any) -> Tensor:
        """As torch's, also in that it returns the tensor itself where there is nothing to do."""
        if args and isinstance(args[0], Tensor):
            args = (args[0].device, args[0].dtype, *args[1:])
        device, dtype, _, layout = torch._C._nn._parse_to(*args, **options)
        if device is not None and device.type == "cuda" and not options.get("copy"):
            return self if dtype in {None, self.dtype} else super().to(dtype, memory_format=layout)
        return super().to(*args, **options)

    def cuda(self, *_: Any, **__: Any) -> Tensor:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if id(self) not in memo:
            copied = self.detach().clone().requires_grad_(self.requires_grad)
            copied.__dict__.update({name: value for name, value in self.__dict__.items() if name == "_is_param"})
            memo[id(self)] = copied
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise NotImplementedError("a tensor on the pretended GPU is not pickled")

    def __repr__(self, **_: Any) -> str:
        return f"OnGpu({self.host!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func}: a tensor on the pretended GPU outside of its context, or in another thread")


def _listed(index: Any) -> Any:
    """An index whose lists are tensors."""
    if isinstance(index, tuple):
        return tuple(_listed(part) for part in index)
    return torch.tensor(index) if isinstance(index, list) else index


class _Generator(torch.Generator):
    """`torch.Generator`, with "cuda" as a device: a generator that says so and draws as one of the CPU."""

    on_gpu: ClassVar[dict[int, _Generator]] = {}
    """By address, all that an operation tells of its generator. Kept, so that no address is used again."""

    def __new__(cls, device: Any = "cpu") -> torch.Generator:
        made = super().__new__(cls, "cpu")
        if _place(device) == "cuda":
            cls.on_gpu[made._cdata] = made
        return made

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", 0) if self._cdata in self.on_gpu else torch.device("cpu")


class _Numbered(TorchFunctionMode):
    """Writes "cuda" as "cuda:0": torch asks the library that is not there for the number of the current device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        if func is Tensor.cuda:
            func, args = Tensor.to, (args[0], "cuda")
        if func is Tensor.to:
            args = tuple(_numbered(arg) for arg in args)
        if "device" in options:
            options["device"] = _numbered(options["device"])
        return func(*args, **options)


def _numbered(device: Any) -> Any:
    bare = isinstance(device, str | torch.device) and torch.device(device) == torch.device("cuda")
    return torch.device("cuda", 0) if bare else device


class PretendedGpu(TorchDispatchMode):
    """Runs every operation on the CPU and says on which device torch would have run it.

    Attributes:
        work: Multiplications and additions of matrix products and convolutions, by device and type.
        drawn: Operations on the GPU that drew from its global generator, by name.
        state: Of that generator, which is another than the CPU's; `torch.manual_seed` seeds both.
        memory: Bytes of the card.
        free: Bytes of them that nothing takes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.work: Counter[tuple[str, torch.dtype]] = Counter()
        self.drawn: Counter[str] = Counter()
        self.state = torch.Generator().get_state()
        self.memory = self.free = 16 * 2**30

    def share(self) -> float:
        """Of the products and convolutions, how much ran on the GPU; NaN where there were none."""
        done = sum(self.work.values())
        return sum(n for (place, _), n in self.work.items() if place == "cuda") / done if done else float("nan")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if _is_composite(func):
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        leaves = [*_leaves(args), *_leaves(kwargs)]
        there = [leaf for leaf in leaves if isinstance(leaf, OnGpu)]
        place = "cuda" if there else "cpu"
        if there:
            _check_devices(func, args, kwargs)
        if kwargs.get("device") is not None:
            place = _place(kwargs["device"])
            kwargs["device"] = "cpu"
        draws = self._check_draw(func, leaves, place)
        known = {id(leaf.host): leaf for leaf in there}
        given, options = _mapped(_to_host, args), _mapped(_to_host, kwargs)
        with self._own_state() if draws else nullcontext():
            result = func(*given, **options)
        if func.overloadpacket in flop_registry:
            count = flop_registry[func.overloadpacket](*given, **options, out_val=result)
            kind = next(leaf.dtype for leaf in _leaves(result) if isinstance(leaf, Tensor))
            if place == "cuda" and not (kind.is_floating_point or kind.is_complex):
                raise RuntimeError(f"\"{func.overloadpacket}_cuda\" not implemented for '{kind}'")
            self.work[place, kind] += count
        if place == "cpu":
            return result
        if "histogram" in func.name():
            raise NotImplementedError(f"Could not run '{func.name()}' with arguments from the 'CUDA' backend.")
        if torch.Tag.inplace_view in func.tags:
            # The shape that C++ knows is changed as well.
            with torch._C._DisableTorchDispatch():
                func(*args, **kwargs)
        for leaf in there:
            if leaf.shape != leaf.host.shape or leaf.stride() != leaf.host.stride():
                raise NotImplementedError(f"{func}: the pretended GPU cannot change a tensor's shape in place")

        def placed(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            return known[id(leaf)] if id(leaf) in known else OnGpu(leaf)

        return _mapped(placed, result)

    def seed(self, seed: int) -> None:
        self.state = torch.Generator().manual_seed(seed).get_state()

    def set_state(self, state: Tensor, device: Any = "cuda") -> None:
        self.state = state

    @contextmanager
    def _own_state(self) -> Iterator[None]:
        """Let operations of the CPU draw from the GPU's generator."""
        kept = torch.default_generator.get_state()
        torch.default_generator.set_state(self.state)
        yield
        self.state = torch.default_generator.get_state()
        torch.default_generator.set_state(kept)

    def _check_draw(self, func: Any, leaves: list[Any], place: str) -> bool:
        """Check whose generator it is; whether it is the GPU's global one."""
        generators = [leaf for leaf in leaves if isinstance(leaf, torch._C.Generator)]
        for generator in generators:
            found = "cuda" if generator._cdata in _Generator.on_gpu else "cpu"
            if found != place:
                raise RuntimeError(f"Expected a '{place}' device type for generator but found '{found}'")
        draws = torch.Tag.nondeterministic_seeded in func.tags and place == "cuda" and not generators
        if draws:
            self.drawn[func.name()] += 1
        return draws


# Arguments and results of operations are tensors, numbers, and lists of them; torch's own trees, which know more,
# would take most of the time.
def _leaves(tree: Any) -> list[Any]:
    """Whatever is no list, tuple or mapping in it, in order."""
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, list | tuple):
        return [tree]
    found: list[Any] = []
    for part in tree:
        if isinstance(part, list | tuple | dict):
            found += _leaves(part)
        else:
            found.append(part)
    return found


def _mapped(change: Callable[[Any], Any], tree: Any) -> Any:
    """The same tree of changed leaves; tuples that have names become plain ones."""
    if isinstance(tree, dict):
        return {name: _mapped(change, part) for name, part in tree.items()}
    if isinstance(tree, list | tuple):
        parts = [_mapped(change, part) if isinstance(part, list | tuple) else change(part) for part in tree]
        return parts if isinstance(tree, list) else tuple(parts)
    return change(tree)


def _to_host(leaf: Any) -> Any:
    return leaf.host if isinstance(leaf, OnGpu) else leaf


@cache
def _is_composite(func: Any) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


def _place(device: Any) -> str:
    # Where C++ makes a tensor for one on the GPU, it asks for "meta", as which it knows the latter.
    return "cpu" if torch.device(device).type == "cpu" else "cuda"


def _check_devices(func: Any, args: Any, kwargs: Any) -> None:
    """Raise where CUDA does: an operation on the GPU takes no tensor of the CPU, with few exceptions."""
    packet = func.overloadpacket
    if packet in _COPYING:
        return
    others = [args, kwargs]
    if packet in _INDEXING:
        if not isinstance(args[0], OnGpu):
            raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
        others = list(args[2:3])
    host = [leaf for leaf in _leaves(others) if isinstance(leaf, Tensor) and not isinstance(leaf, OnGpu)]
    if not host:
        return
    scalars = packet in _INDEXING | _TAKES_HOST_SCALARS or torch.Tag.pointwise in func.tags
    written = args[0] if func._schema.is_mutable and args else None
    if any(leaf.ndim or not scalars or leaf is written for leaf in host):
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
            f"({func.name()})"
        )


@contextmanager
def pretended_gpu() -> Iterator[PretendedGpu]:
    """Make `cuda` a device that works, and say afterwards what ran there."""
    # Without a GPU's library torch cannot even name its current device.
    torch._C._ensureCUDADeviceGuardSet()
    lifted = torch._C._only_lift_cpu_tensors()
    swapped = torch.__future__.get_swap_module_params_on_conversion()
    gpu = PretendedGpu()
    replaced = {
        "manual_seed_all": gpu.seed,
        "get_rng_state": lambda device=None: gpu.state,
        "set_rng_state": gpu.set_state,
        "is_available": lambda: True,
        "_lazy_init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "synchronize": lambda device=None: None,
        "get_device_name": lambda device=None: "a GPU that is not there",
        "mem_get_info": lambda device=None: (gpu.free, gpu.memory),
        "is_bf16_supported": lambda including_emulation=True: True,
    }
    with mock.patch.multiple(torch.cuda, **replaced), mock.patch.object(torch, "Generator", _Generator):
        # `torch.tensor(..., device="cuda")` makes a tensor of the CPU and copies it, in our sight.
        torch._C._set_only_lift_cpu_tensors(True)
        # `module.to` keeps the identity of parameters, as it does with a real device.
        torch.__future__.set_swap_module_params_on_conversion(True)
        try:
            with gpu, _Numbered():
                yield gpu
        finally:
            torch._C._set_only_lift_cpu_tensors(lifted)
            torch.__future__.set_swap_module_params_on_conversion(swapped)
            _Generator.on_gpu.clear()
