"""The table of the strict rules: what each refuses, who enforces it, where it comes from. Data only.

Ids are those of the project's list of what Apple's Metal compilers, 3.1 to 4.1, refuse and a C++ compiler does not:
V version and options, L language, A address spaces, K kernel signatures, T types and overloads, M limits and Metal 4.
`Surface` is no rule of a compiler: it refuses what no shipping kernel is known to use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Enforcer = Literal["text", "clang", "shim"]


@dataclass(frozen=True)
class Rule:
    """`others` says what a broken rule means in a text that is not ours: an "error" where every supported compiler
    refuses it, else a "note". `enforcers` are the text pass, the libclang pass, and the shim, where a broken rule
    does not compile.
    """

    id: str
    refuses: str
    origin: str
    enforcers: tuple[Enforcer, ...]
    others: Literal["error", "note"] = "note"


def _table(*rules: Rule) -> dict[str, Rule]:
    return {rule.id: rule for rule in rules}


# Kernels that Apple's compiler was given, with what it said: 64 of 541 break these three.
_APPLE = "vicgalle/metal-sci-kernels"

RULES: dict[str, Rule] = _table(
    Rule("V4", "bytes that are not ASCII, in comments too", "PyTorch compileLibrary: NSASCIIStringEncoding", ("text",)),
    Rule(
        "L1", "lambdas, which came with Metal 3.2", "go-gui#126, PyTorch OperationUtils.mm", ("text", "clang"), "error"
    ),
    Rule(
        "L3",
        "recursion, new, goto, exceptions, virtual, noexcept, std::",
        "the specification, by its readers",
        ("text", "clang"),
        "error",
    ),
    Rule("L4", "double, long double, long long", "Metal.jl#84, tvm#7118", ("text",), "error"),
    Rule("L5", "arrays whose length is no constant expression", "llama.cpp#12612, MoltenVK#1106", ("clang",), "error"),
    Rule(
        "L6",
        "program, namespace and class scope variables outside constant",
        "AdaptiveCpp#864, slang#4373",
        ("clang",),
        "error",
    ),
    Rule("L7", "static variables in functions", "hlslparser#22", ("text",)),
    Rule("L8", "unions", "tvm#874", ("text",)),
    Rule("L9", "declared names that the language reserves", "naga keywords.rs, wgpu#5347, vpipe#26", ("text",)),
    Rule("L10", "inline assembly and private built-ins", "metal-flash-attention#4, dxmt#167", ("text",)),
    Rule("L11", "brackets nested 200 deep; 256 is fatal", "RetroArch#14670", ("text",), "error"),
    Rule("L13", "pragmas that no shipping kernel uses", "the attested surface", ("text",)),
    Rule("L14", "restrict, which is __restrict", _APPLE, ("text",), "error"),
    Rule("L15", "half and bfloat as names", _APPLE, ("text",), "error"),
    Rule("A1", "pointers and references without an address space", "tilelang#2767, hashcat#3540", ("text",)),
    Rule("A2", "conversions between address spaces", "slang#4137, krafix#95", ("clang",), "error"),
    Rule(
        "A3",
        "member functions without a trailing address space; generic to thread, in 4.1",
        "mlx#3963, executorch#22981",
        ("text", "clang"),
    ),
    Rule("A4", "decltype of an lvalue, which carries its address space in 4.1", "mlx#4533", ("text",)),
    Rule("A5", "constant data as thread or generic", "O2Group#15802", ("clang",), "error"),
    Rule(
        "A6", "threadgroup variables outside a kernel's body", "the attested surface, slang#4045", ("clang",), "error"
    ),
    Rule(
        "A7",
        "threadgroup arrays of types with constructors, matrices among them",
        "llama.cpp#26646",
        ("clang",),
        "error",
    ),
    Rule("A8", "initialisers of threadgroup variables", "llama.cpp#26646", ("text",)),
    Rule("A9", "threadgroup references, which may be miscompiled", "wgpu#9380", ("text",)),
    Rule("A10", "[[threadgroup(n)]], which torch's launches cannot size", "naga#77, tilelang#3196", ("text",)),
    Rule("A11", "pointers to pointers, reference members, pointers inside buffers", "SPIRV-Cross#1628", ("text",)),
    Rule("K1", "kernel inputs by value, and pointers to thread", "tinygrad#1552", ("text",), "error"),
    Rule(
        "K2",
        "position inputs that are signed, wide, or of mixed arity",
        "slang#4288, triton-msl#10",
        ("text",),
        "error",
    ),
    Rule("K3", "thread_execution_width beside threads_per_simdgroup", "SPIRV-Cross#2568", ("text",), "error"),
    Rule("K4", "buffer indices above 30, or used twice", "slang#9846, mlx#1887", ("text",), "error"),
    Rule("K5", "kernels that do not state their threads", "wgpu#9176, SDL#15241", ("text",)),
    Rule(
        "K6",
        "kernels that return, are overloaded or called; instantiations not by decltype",
        "candle gemv.metal",
        ("text",),
    ),
    Rule("K7", "function constants, which torch cannot set", "metalangle#36", ("text",)),
    Rule("K8", "attributes of a function behind its parameters, or behind `kernel`", _APPLE, ("text",), "error"),
    Rule("T1", "float to bfloat without a cast", "pytorch#177193", ("shim",), "error"),
    Rule("T2", "mathematics on bfloat", "cubecl#1200, Metal.jl#446", ("shim",), "error"),
    Rule("T3", "bfloat between lanes", "candle reduce.metal, modular#5487", ("shim",), "error"),
    Rule("T4", "64 bits or bool between lanes", "SPIRV-Cross#2007, #2538", ("shim",), "error"),
    Rule("T5", "calls with arguments of several types", "Halide#8245, halley#79", ("shim",), "error"),
    Rule("T6", "floating literals without f or h", "slang#11837, tvm#18627", ("text",)),
    Rule("T7", "as_type between sizes", "slang#11837", ("shim",), "error"),
    Rule("T8", "simdgroup matrices that are not 8x8, or of integers", "clpeak#169, Sarek#334", ("shim",), "error"),
    Rule("T9", "loads of another element type than the matrix's", "the attested surface", ("shim",), "error"),
    Rule("T11", "64-bit integers between lanes and other missing 64-bit forms", "quadrants#511", ("shim",), "error"),
    Rule("T12", "atomics that do not exist", "PyTorch atomic.h, MLX atomic.h", ("shim",), "error"),
    Rule("T13", "(a / b) % c, which was miscompiled", "PyTorch c10/metal/utils.h", ("text",)),
    Rule(
        "T15",
        "implicit conversions of vectors",
        "no report known; kept, as the explicit form is always right",
        ("shim",),
    ),
    Rule("T16", "missing <metal_stdlib>, <metal_simdgroup_matrix> or using namespace metal", "mlx#3337", ("text",)),
    Rule("M1", "threadgroup memory over 32768 bytes", "gpuweb#1872, Metal.jl#838", ("clang",), "error"),
    Rule("M2", "more than 1024 threads", "metal-rs#244", ("text",), "error"),
    Rule(
        "M5",
        "fences, coherent and logging, which came with 3.2; other memory orders",
        "SPIRV-Cross spirv_msl.cpp",
        ("text",),
    ),
    Rule("M7", "Metal 4 tensors", "ollama#15862, mlx#3586", ("text",)),
    Rule(
        "Surface",
        "library names, attributes and headers that no shipping kernel uses",
        "982 files of 21 projects",
        ("text",),
    ),
)

# Ids of the same list that nothing here can see, and why.
NOT_ENFORCED: dict[str, str] = {
    "V1": "says which language versions there are; the libclang pass runs once as 3.1 and once as 4.1 because of it",
    "V2": "names newer than 3.1 are refused by L1, M5, M7 and Surface, with __METAL_VERSION__ taken as 310",
    "V3": "fast or safe mathematics is the host's choice and shows in results only; tests compare results",
    "V5": "warnings never fail a compilation at run time",
    "L2": "`if constexpr` is accepted by every supported version",
    "L12": "a function pointer is not known to fail; tokens cannot tell one from an array of its type",
    "A12": "says what is allowed: references to register arrays, `thread` written out (A1)",
    "T10": "3-vectors in structs that the host fills: the text does not say which structs those are",
    "T14": "shuffles past the edge depend on values: the engine gives such lanes their own value, as one GPU may",
    "M3": "internal errors of Apple's back end have no pattern in the text",
    "M4": "barriers in divergent code depend on values: check mode finds them in launches",
    "M6": "matrix and lane operations in divergent code depend on values: check mode finds them in launches",
}
