// Threadgroup memory: the first thread that comes to a declaration places the array, the others find it.
#include <stdio.h>
#include <stdlib.h>

#include "arena.h"
#include "shadow.h"

namespace runtime {

size_t rounded(size_t bytes) { return (bytes + ARRAY_ALIGNMENT - 1) / ARRAY_ALIGNMENT * ARRAY_ALIGNMENT; }

void* place_array(Threadgroup* group, const void* key, size_t size, size_t granule, const char* name, int line,
                  void* pc) {
    size_t total = size;
    for (int i = 0; i < group->array_count; ++i) total += rounded(group->arrays[i].size);
    size_t offset = rounded(group->arena_used);
    size_t needed = offset + size + (group->check ? RED_ZONE : 0);
    if (needed > ARENA_BYTES || group->array_count == MAX_ARRAYS) {
        fprintf(stderr,
                "Metal simulator: threadgroup array '%s' of %zu bytes does not fit into %zu bytes and %d arrays\n",
                name, size, ARENA_BYTES, MAX_ARRAYS);
        abort();
    }
    if (total > group->launch->tg_limit) report_threadgroup_memory(group, name, total, line, pc);
    if (group->launch->poison) __builtin_memset(group->arena + offset, 0xFF, needed - offset);
    if (group->check) array_shadow(group->array_count).cover(size, static_cast<uint32_t>(granule));
    uint32_t used = static_cast<uint32_t>(total), known = __atomic_load_n(&group->launch->tg_used, __ATOMIC_RELAXED);
    while (used > known && !__atomic_compare_exchange_n(&group->launch->tg_used, &known, used, false, __ATOMIC_RELAXED,
                                                        __ATOMIC_RELAXED)) {
    }
    group->arena_used = needed;
    group->arrays[group->array_count++] = ThreadgroupArray{key, offset, size, name};
    return group->arena + offset;
}

void reset_arrays(Threadgroup* group) {
    if (group->launch->poison) __builtin_memset(group->arena, 0xFF, group->arena_used);
    if (!group->check) return;
    for (int i = 0; i < group->array_count; ++i) array_shadow(i).forget();
}

}  // namespace runtime

using namespace runtime;

extern "C" void* msl_tg_alloc(const void* key, size_t size, const char* name, int line, size_t granule) {
    Threadgroup* group = current;
    for (int i = 0; i < group->array_count; ++i)
        if (group->arrays[i].key == key) return group->arena + group->arrays[i].offset;
    if (group->order == MSL_FIBERLESS)
        report_unsupported(group, "threadgroup memory", line, __builtin_return_address(0));
    return place_array(group, key, size, granule, name, line, __builtin_return_address(0));
}
