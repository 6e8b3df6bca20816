"""Kernels that look wrong and are correct: statements for the frame of `faulty_kernels`, for two threadgroups."""

from __future__ import annotations

from .faulty_kernels import BARRIER, DEVICE_BARRIER, RELAXED

CORRECT = {
    "a barrier": f"threadgroup float t[128]; t[i] = x[i]; {BARRIER} out[at] = t[127 - i];",
    "a simdgroup_barrier within a simdgroup": """
        threadgroup float t[128]; t[i] = x[i]; simdgroup_barrier(mem_flags::mem_threadgroup); out[at] = t[i ^ 1];""",
    "a device barrier": f"out[at] = x[i]; {DEVICE_BARRIER} if (i == 0) out[group * 128] = out[group * 128 + 64];",
    "both flags at once": """
        threadgroup float t[128]; t[i] = x[i]; out[at] = x[i];
        threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
        float v = t[127 - i] + out[at ^ 64]; threadgroup_barrier(mem_flags::mem_device); out[at] = v;""",
    "atomics": f"""
        device atomic_float* a = (device atomic_float*)out; atomic_fetch_add_explicit(a, x[i], {RELAXED});""",
    "two arrays used in turn": f"""
        threadgroup float t[128]; threadgroup float u[32]; t[i] = x[i]; {BARRIER}
        if (lane == 0) u[sg] = t[i]; {BARRIER} out[at] = u[sg ^ 1];""",
    "neighbouring halves in an array of floats": f"""
        threadgroup float pool[64]; threadgroup half* t = (threadgroup half*)pool;
        t[i] = half(x[i]); {BARRIER} out[at] = float(t[i ^ 33]);""",
    "neighbouring bytes in an array of words": f"""
        threadgroup uint pool[32]; threadgroup uchar* t = (threadgroup uchar*)pool;
        t[i] = uchar(i); {BARRIER} out[at] = float(t[127 - i]);""",
    "neighbouring bytes of device words, by two threadgroups": """
        device uchar* bytes = (device uchar*)out; bytes[2 * i + group] = uchar(i);""",
    "an array reused with another type": f"""
        threadgroup float4 pool[32]; threadgroup float* t = (threadgroup float*)pool;
        t[i] = x[i]; {BARRIER} float4 v = pool[i / 4]; {BARRIER} ((threadgroup uint*)pool)[i] = i; {BARRIER}
        out[at] = v.x + float(((threadgroup uint*)pool)[127 - i]);""",
    "the padding of a float3 is never written": f"""
        threadgroup float3 t[128]; threadgroup float3 u[128]; t[i] = float3(x[i], 1.0f, 2.0f); {BARRIER}
        u[i] = t[127 - i]; {BARRIER} out[at] = u[i ^ 64].x + u[i ^ 64].z;""",
    "a struct copied whole": f"""
        struct Pair {{ float a; int b; float c[6]; }}; threadgroup Pair t[4];
        if (i < 4) {{ Pair p; p.a = 1; p.b = 2; for (int k = 0; k < 6; k++) p.c[k] = x[k]; t[i] = p; }} {BARRIER}
        Pair q = t[i % 4]; out[at] = q.a + float(q.b) + q.c[5];""",
    "reads before a lane operation, writes after it": f"""
        threadgroup float t[4]; if (lane == 0) t[sg] = 1.0f; {BARRIER}
        float v = t[sg]; float s = simd_sum(v); if (lane == 0) t[sg] = s; {BARRIER} out[at] = t[3 - sg];""",
    "columns owned by simdgroups": """
        threadgroup float t[128]; for (int k = 0; k < 3; k++) {
        t[i] = float(k); simdgroup_barrier(mem_flags::mem_threadgroup);
        out[at] = t[sg * 32 + 31 - lane]; simdgroup_barrier(mem_flags::mem_threadgroup); }""",
    "pointers to private arrays": """
        float a[9]; thread float* p = a; for (int k = 0; k < 9; k++) p[k] = x[k]; float s = 0;
        for (int k = 0; k < 9; k++) s += *(p + k); out[at] = simd_sum(s);""",
    "atomics and a barrier before the plain read": f"""
        threadgroup atomic_uint m; if (i == 0) atomic_store_explicit(&m, 0u, {RELAXED}); {BARRIER}
        atomic_fetch_add_explicit(&m, 1u, {RELAXED}); {BARRIER}
        out[at] = float(*(threadgroup uint*)&m);""",
    "double buffering with one barrier a step": f"""
        threadgroup float t[2][128]; t[0][i] = x[i]; float s = 0;
        for (int k = 0; k < 6; k++) {{ {BARRIER} s += t[k % 2][127 - i]; t[(k + 1) % 2][i] = s; }} out[at] = s;""",
    "an inner barrier reached by all in a loop of uniform length": f"""
        threadgroup float t[128]; float s = 0; for (uint k = 0; k < uint(x[0]) + 3; k++) {{
        t[i] = s; {BARRIER} s += t[i ^ 64] + 1; {BARRIER} }} out[at] = s;""",
    "a reduction over the lanes that have not returned": """
        if (i >= 100) return; out[at] = simd_sum(x[i]) + simd_max(x[i]);""",
    "a shuffle among the lanes that have not returned": """
        if (i >= 112) return; out[at] = simd_shuffle_xor(x[i], 1) + simd_shuffle_down(x[i], lane == 15 ? 0 : 1) * 0;""",
    "a guarded index that is never used outside": "out[at] = i + 1 < 128 ? x[i + 1] : 0.0f;",
    "a pointer past the end that nobody follows": """
        device const float* end = x + 128; float s = 0; for (device const float* p = x + i; p < end; p += 64) s += *p;
        out[at] = s;""",
    "a tile stored, ordered, and loaded transposed": f"""
        threadgroup float t[4][64]; simdgroup_float8x8 m(2.0f); simdgroup_store(m, t[sg]); {BARRIER}
        simdgroup_load(m, t[3 - sg], 8, ulong2(0), true); out[at] = m.thread_elements()[0];""",
    "overlapping tiles that are only read": """
        simdgroup_float8x8 m; simdgroup_load(m, x + sg * 8, 8); out[at] = m.thread_elements()[1];""",
    "padded rows of a tile": f"""
        threadgroup float t[8 * 9]; if (i < 64) t[i / 8 * 9 + i % 8] = x[i]; {BARRIER}
        simdgroup_float8x8 m; simdgroup_load(m, t, 9); out[at] = m.thread_elements()[0];""",
    "a flag between simdgroups, set and polled atomically": f"""
        threadgroup atomic_uint m; if (i == 0) atomic_store_explicit(&m, 0u, {RELAXED}); {BARRIER}
        if (i == 0) atomic_store_explicit(&m, 1u, {RELAXED});
        while (atomic_load_explicit(&m, {RELAXED}) == 0) {{}} out[at] = 1;""",
    "an initialiser in threadgroup memory": f"""
        threadgroup float t[4] = {{1, 2, 3, 4}}; {BARRIER} out[at] = t[i & 3];""",
    "elements updated in place by their own threads": """
        out[at] = x[i]; out[at] += 1; for (int k = 0; k < 3; k++) out[at] *= 2;""",
}
