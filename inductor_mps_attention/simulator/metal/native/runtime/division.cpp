#include "division.h"

#include <stdint.h>

namespace runtime {

#if defined(__x86_64__)
namespace {

// The bytes of a ModRM operand: the byte itself, a scale-index-base byte, a displacement.
int operand_length(const uint8_t* modrm) {
    int mode = *modrm >> 6, base = *modrm & 7;
    if (mode == 3) return 1;
    int length = 1;
    if (base == 4) {
        ++length;
        base = modrm[1] & 7;
    }
    if (mode == 1) return length + 1;
    if (mode == 2 || base == 5) return length + 4;
    return length;
}

}  // namespace

bool finish_division(ucontext_t* context) {
    greg_t* registers = context->uc_mcontext.gregs;
    const uint8_t* at = reinterpret_cast<const uint8_t*>(registers[REG_RIP]);
    bool short_operand = false, long_operand = false;
    while (*at == 0x66 || (*at & 0xF0) == 0x40) {
        short_operand |= *at == 0x66;
        long_operand |= (*at & 0xF8) == 0x48;
        ++at;
    }
    // F6 and F7 with 6 or 7 in the middle of ModRM are DIV and IDIV.
    if ((*at != 0xF6 && *at != 0xF7) || (at[1] & 0x30) != 0x30) return false;
    bool is_signed = at[1] & 8;
    uint64_t low = static_cast<uint64_t>(registers[REG_RAX]), high = static_cast<uint64_t>(registers[REG_RDX]);
    uint64_t least = long_operand ? uint64_t(1) << 63 : short_operand ? uint64_t(1) << 15 : uint64_t(1) << 31;
    uint64_t mask = least * 2 - 1;
    if (*at == 0xF6) {  // AX / byte: the remainder goes to AH
        registers[REG_RAX] = static_cast<greg_t>((low & ~uint64_t(0xFFFF)) | (low & 0xFF) << 8);
    } else {
        // An exception of the least integer by -1 is told from one of zero by the dividend: the former's high half is
        // all ones. With a zero divisor and this dividend the results are unspecified all the same.
        bool overflow = is_signed && (low & mask) == least && (high & mask) == mask;
        uint64_t kept = short_operand ? ~uint64_t(0xFFFF) : 0;
        registers[REG_RAX] = static_cast<greg_t>((low & kept) | (overflow ? least : 0));
        registers[REG_RDX] = static_cast<greg_t>((high & kept) | (overflow ? 0 : low & mask));
    }
    registers[REG_RIP] = reinterpret_cast<greg_t>(at + 1 + operand_length(at + 1));
    return true;
}
#else
bool finish_division(ucontext_t*) { return false; }
#endif

}  // namespace runtime
