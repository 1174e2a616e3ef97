/* CRC-32 (IEEE) and CRC-32C over any bytes, with the fastest kernel the processor has.

   Bits are reflected throughout: bit 0 of a byte is the highest power of x. In a register of w bits, bit i
   means x^(w-1-i). A carry-less product of two 64-bit registers, read as a 128-bit register, is then the
   product of the polynomials times x; every constant below is one power lower to make up for it.

   All constants are derived from the polynomial when the module loads (derive_constants); none is typed in.

   Folding: a block d bits before the end has weight x^d, so it may be replaced by 128 bits congruent
   to block * x^d at the end. Leading zeroes weigh nothing, hence the odd bytes are taken first, padded in
   front, and the rest is whole blocks. The running CRC is added to the first four bytes of the message. */
#ifndef PYLEDGER_DIGEST_KERNELS_H
#define PYLEDGER_DIGEST_KERNELS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/little_endian.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(PYLEDGER_PORTABLE_DIGESTS)
#define DIGEST_X86 1
#elif defined(__aarch64__) && defined(__AARCH64EL__) && !defined(PYLEDGER_PORTABLE_DIGESTS)
#define DIGEST_ARM 1
#endif

#define CRC32_POLYNOMIAL 0xEDB88320u  /* reflected; zlib, gzip, RocketMQ's body CRC */
#define CRC32C_POLYNOMIAL 0x82F63B78u /* reflected; RFC 3720, RFC 9260 */
#define LANE_WORDS_MAX 64             /* longest lane of the three-way kernels, in 8-byte words */
#define WIDE_MIN_BYTES 192            /* from here on 512-bit registers pay (measured on Zen 4) */

struct crc_constants {
    uint32_t slices[8][256]; /* slices[k][b]: byte b followed by k zero bytes */
    /* Pairs for the first and second half of 16 bytes. */
    uint64_t window512[4][8]; /* block i, lane j of 256 bytes -> the last 16 bytes */
    uint64_t window128[4][2]; /* block i of 64 bytes -> the last 16 bytes */
    uint64_t step512[2];      /* 256 bytes on */
    uint64_t step128[2];      /* 64 bytes on */
    uint64_t reduce[3];       /* x^95 mod P; floor(x^95 / P); P without its top bit */
    uint32_t lane_jump[2 * LANE_WORDS_MAX + 1]; /* [i]: i words on, for a 32 x 32 bit product */
};

static struct crc_constants crc32_constants;
static struct crc_constants crc32c_constants;

/* ---- derivation ---------------------------------------------------------------------------------- */

static uint32_t times_x(uint32_t value, uint32_t polynomial) {
    return (value >> 1) ^ ((value & 1u) ? polynomial : 0u);
}

/* x^exponent mod P, for exponent >= -1. */
static uint32_t power_of_x(int exponent, uint32_t polynomial) {
    uint32_t value = 0x80000000u; /* x^0 */
    if (exponent < 0)
        return ((value ^ polynomial) << 1) | 1u;
    while (exponent-- > 0)
        value = times_x(value, polynomial);
    return value;
}

/* Moves 128 bits `distance_bytes` on: the first 64 bits weigh x^64 more than the second. */
static void derive_fold(uint64_t pair[2], int distance_bytes, uint32_t polynomial) {
    int bits = 8 * distance_bytes;
    pair[0] = (uint64_t)power_of_x(bits + 63, polynomial) << 32;
    pair[1] = (uint64_t)power_of_x(bits - 1, polynomial) << 32;
}

static void derive_constants(struct crc_constants *c, uint32_t polynomial) {
    uint32_t value;
    uint64_t quotient = 0;
    for (uint32_t byte = 0; byte < 256; byte++) {
        value = byte;
        for (int bit = 0; bit < 8; bit++)
            value = times_x(value, polynomial);
        c->slices[0][byte] = value;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int k = 1; k < 8; k++) {
            value = c->slices[k - 1][byte];
            c->slices[k][byte] = (value >> 8) ^ c->slices[0][value & 0xFF];
        }
    for (int block = 0; block < 4; block++) {
        derive_fold(c->window128[block], 16 * (3 - block), polynomial);
        for (int lane = 0; lane < 4; lane++)
            derive_fold(&c->window512[block][2 * lane], 64 * (3 - block) + 16 * (3 - lane), polynomial);
    }
    derive_fold(c->step512, 256, polynomial);
    derive_fold(c->step128, 64, polynomial);
    value = 0x80000000u;
    for (int degree = 94; degree >= 0; degree--) { /* long division of x^95 by P */
        if (value & 1u)
            quotient |= 1ull << (63 - degree);
        value = times_x(value, polynomial);
    }
    c->reduce[0] = power_of_x(95, polynomial);
    c->reduce[1] = quotient;
    c->reduce[2] = (uint64_t)polynomial << 1;
    for (int words = 1; words <= 2 * LANE_WORDS_MAX; words++)
        c->lane_jump[words] = power_of_x(64 * words - 33, polynomial);
}

/* ---- portable: eight bytes a step ---------------------------------------------------------------- */

static uint32_t update_sliced(uint32_t state, const uint8_t *p, size_t n, const struct crc_constants *c) {
    while (n >= 8) {
        uint32_t low = state ^ load_le32(p), high = load_le32(p + 4);
        state = c->slices[7][low & 0xFF] ^ c->slices[6][(low >> 8) & 0xFF];
        state ^= c->slices[5][(low >> 16) & 0xFF] ^ c->slices[4][low >> 24];
        state ^= c->slices[3][high & 0xFF] ^ c->slices[2][(high >> 8) & 0xFF];
        state ^= c->slices[1][(high >> 16) & 0xFF] ^ c->slices[0][high >> 24];
        p += 8;
        n -= 8;
    }
    while (n--)
        state = (state >> 8) ^ c->slices[0][(state ^ *p++) & 0xFF];
    return state;
}

static uint32_t crc32_sliced(uint32_t state, const uint8_t *p, size_t n) {
    return update_sliced(state, p, n, &crc32_constants);
}

static uint32_t crc32c_sliced(uint32_t state, const uint8_t *p, size_t n) {
    return update_sliced(state, p, n, &crc32c_constants);
}

/* ---- instructions for a CRC: one step takes eight bytes ------------------------------------------ */

#define INLINE static inline __attribute__((always_inline))

static inline uint64_t load64(const uint8_t *p) {
    uint64_t value;
    memcpy(&value, p, 8);
    return value;
}

/* A step waits for the one before it, so three lanes of equal length go at once. JUMP multiplies a lane's
   state so that it counts from where a later lane begins. ONE_LANE continues with `state`, `p` and `n`. */
#define THREE_LANES(STEP64, JUMP, constants)                                                          \
    const uint32_t *jumps = (constants)->lane_jump;                                                   \
    uint64_t a = state;                                                                               \
    while (n >= 72) {                                                                                 \
        size_t words = n / 24 < LANE_WORDS_MAX ? n / 24 : LANE_WORDS_MAX, last = 8 * (words - 1);     \
        const uint8_t *q = p + 8 * words, *r = q + 8 * words;                                         \
        uint64_t b = 0, c = 0;                                                                        \
        for (size_t at = 0; at < last; at += 8) {                                                     \
            a = STEP64(a, load64(p + at));                                                            \
            b = STEP64(b, load64(q + at));                                                            \
            c = STEP64(c, load64(r + at));                                                            \
        }                                                                                             \
        a = STEP64(a, load64(p + last));                                                              \
        b = STEP64(b, load64(q + last));                                                              \
        a = JUMP(a, jumps[2 * words]) ^ JUMP(b, jumps[words]);                                        \
        a = STEP64(c, load64(r + last) ^ a);                                                          \
        p += 24 * words;                                                                              \
        n -= 24 * words;                                                                              \
    }                                                                                                 \
    state = (uint32_t)a

#define ONE_LANE(STEP64, STEP32, STEP8)                                                               \
    uint64_t whole = state;                                                                           \
    for (; n >= 8; n -= 8, p += 8)                                                                    \
        whole = STEP64(whole, load64(p));                                                             \
    state = (uint32_t)whole;                                                                          \
    if (n & 4) {                                                                                      \
        state = STEP32(state, load_le32(p));                                                          \
        p += 4;                                                                                       \
    }                                                                                                 \
    for (n &= 3; n > 0; n--)                                                                          \
        state = STEP8(state, *p++);                                                                   \
    return state

#if DIGEST_X86
#include "base/digest_x86.h"
#elif DIGEST_ARM
#include "base/digest_arm.h"
#endif

/* ---- choice -------------------------------------------------------------------------------------- */

typedef uint32_t (*crc_kernel)(uint32_t state, const uint8_t *p, size_t n);

struct named_kernel {
    const char *name;
    crc_kernel kernel;
};

/* The kernels this processor can run, for the tests; the last of a kind is the one in use. */
static struct named_kernel digest_kernels[8];
static int digest_kernel_count = 0;
static crc_kernel crc32_kernel = crc32_sliced;
static crc_kernel crc32c_kernel = crc32c_sliced;
static const char *digest_kernel_name = "portable";

static void use_kernels(const char *name, const char *name32, crc_kernel kernel32, const char *name32c,
                        crc_kernel kernel32c) {
    digest_kernel_name = name;
    digest_kernels[digest_kernel_count].name = name32;
    digest_kernels[digest_kernel_count++].kernel = crc32_kernel = kernel32;
    digest_kernels[digest_kernel_count].name = name32c;
    digest_kernels[digest_kernel_count++].kernel = crc32c_kernel = kernel32c;
}

/* Derives the constants and picks the kernels; once, before any digest. */
static void choose_kernels(void) {
    derive_constants(&crc32_constants, CRC32_POLYNOMIAL);
    derive_constants(&crc32c_constants, CRC32C_POLYNOMIAL);
    digest_kernel_count = 0;
    use_kernels("portable", "crc32-portable", crc32_sliced, "crc32c-portable", crc32c_sliced);
#if DIGEST_X86
    if (!has_clmul_and_sse42())
        return;
    use_kernels("pclmulqdq+sse4.2", "crc32-pclmulqdq", crc32_clmul, "crc32c-sse4.2", crc32c_sse42);
    if (!has_wide_clmul())
        return;
    use_kernels("vpclmulqdq", "crc32-vpclmulqdq", crc32_vclmul, "crc32c-vpclmulqdq", crc32c_vclmul);
#elif DIGEST_ARM
    if (!has_crc_instructions())
        return;
    use_kernels("armv8-crc", "crc32-armv8", crc32_armv8, "crc32c-armv8", crc32c_armv8);
    if (!has_pmull())
        return;
    use_kernels("armv8-crc+pmull", "crc32-pmull", crc32_pmull, "crc32c-pmull", crc32c_pmull);
#endif
}

/* zlib's convention: start with 0, continue with the last result. */
static inline uint32_t crc32_update(uint32_t crc, const uint8_t *p, size_t n) {
    return ~crc32_kernel(~crc, p, n);
}

static inline uint32_t crc32c_update(uint32_t crc, const uint8_t *p, size_t n) {
    return ~crc32c_kernel(~crc, p, n);
}

static inline uint32_t crc_update_with(crc_kernel kernel, uint32_t crc, const uint8_t *p, size_t n) {
    return ~kernel(~crc, p, n);
}

#endif
