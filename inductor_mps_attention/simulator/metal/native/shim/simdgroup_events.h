// Copies by a whole simdgroup between device and threadgroup memory, which texts reach through intrinsics of Apple's
// compiler. Each lane copies its share at once, so that there is nothing to wait for: the caller's barrier, which
// orders the copies before other threads' accesses, is what is checked.
#pragma once
#include "type_names.h"

namespace msl_ {

// The event of a copy that is complete. Texts declare a type of their own for what it points to.
struct CompletedEvent {
    template <class Event>
    MSL_INLINE operator Event*() const {
        return nullptr;
    }
};

template <class Unit>
MSL_INLINE void copy_units(char* target, const char* source, metal::ulong bytes) {
    for (metal::ulong at = 0; at < bytes; at += sizeof(Unit))
        *(Unit*)(target + at) = source ? *(const Unit*)(source + at) : Unit(0);
}
// Without a source it is zeros. By the largest unit that fits, as a checked access has a size.
MSL_INLINE void copy_element(char* target, const char* source, metal::ulong bytes) {
    if (bytes % 4 == 0)
        copy_units<metal::uint>(target, source, bytes);
    else if (bytes % 2 == 0)
        copy_units<metal::ushort>(target, source, bytes);
    else
        copy_units<metal::uchar>(target, source, bytes);
}

MSL_INLINE CompletedEvent simdgroup_async_copy_1d(metal::ulong size, metal::ulong, void* target, const void* source,
                                                  metal::ulong elements) {
    for (metal::ulong element = msl_thread->lane; element < elements; element += MSL_LANES)
        copy_element((char*)target + element * size, (const char*)source + element * size, size);
    return {};
}

// Fills a tile of the target, (width, height), with one of the source from `offset` on. What lies outside of the source
// is zero with clamp mode 0, and the nearest element with 1. Rows are `target_row` and `source_row` elements apart.
MSL_INLINE CompletedEvent simdgroup_async_copy_2d(metal::ulong size, metal::ulong, void* target,
                                                  metal::ulong target_row, metal::ulong, metal::ulong2 target_tile,
                                                  const void* source, metal::ulong source_row, metal::ulong,
                                                  metal::ulong2 source_tile, metal::long2 offset, int clamp_mode) {
    for (metal::ulong element = msl_thread->lane; element < target_tile.x * target_tile.y; element += MSL_LANES) {
        metal::ulong column = element % target_tile.x, row = element / target_tile.x;
        long x = (long)column + offset.x, y = (long)row + offset.y;
        const bool outside = x < 0 || y < 0 || x >= (long)source_tile.x || y >= (long)source_tile.y;
        if (outside && clamp_mode) {
            x = x < 0 ? 0 : x < (long)source_tile.x ? x : (long)source_tile.x - 1;
            y = y < 0 ? 0 : y < (long)source_tile.y ? y : (long)source_tile.y - 1;
        }
        const char* from = (const char*)source + (y * (long)source_row + x) * (long)size;
        copy_element((char*)target + (row * target_row + column) * size, outside && !clamp_mode ? nullptr : from, size);
    }
    return {};
}

template <class Events>
MSL_INLINE void wait_simdgroup_events(int, Events) {}

}  // namespace msl_
