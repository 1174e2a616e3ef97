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
#include <immintrin.h>
#else
#define DIGEST_X86 0
#endif

#define CRC32_POLYNOMIAL 0xEDB88320u  /* reflected; zlib, gzip, RocketMQ's body CRC */
#define CRC32C_POLYNOMIAL 0x82F63B78u /* reflected; RFC 3720, RFC 9260 */
#define CRC32C_LANE_WORDS 64          /* longest lane of the three-way CRC-32C kernel, in 8-byte words */
#define WIDE_MIN_BYTES 192            /* from here on 512-bit registers pay (measured on Zen 4) */

struct crc_constants {
    uint32_t slices[8][256]; /* slices[k][b]: byte b followed by k zero bytes */
    /* Pairs for the first and second half of 16 bytes. */
    uint64_t window512[4][8]; /* block i, lane j of 256 bytes -> the last 16 bytes */
    uint64_t window128[4][2]; /* block i of 64 bytes -> the last 16 bytes */
    uint64_t step512[2];      /* 256 bytes on */
    uint64_t step128[2];      /* 64 bytes on */
    uint64_t reduce[3];       /* x^95 mod P; floor(x^95 / P); P without its top bit */
    uint32_t lane_jump[2 * CRC32C_LANE_WORDS + 1]; /* [i]: i words on, for a 32 x 32 bit product */
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
    for (int words = 1; words <= 2 * CRC32C_LANE_WORDS; words++)
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

#if DIGEST_X86

#define TARGET_CLMUL __attribute__((target("sse4.2,pclmul")))
#define TARGET_VCLMUL __attribute__((target("avx512f,avx512bw,avx512vl,vpclmulqdq,pclmul,sse4.2")))
#define INLINE static inline __attribute__((always_inline))

/* 128 bits times x^32 mod P, by Barrett's division: W = first * x^96 + second * x^32 has 96 bits, the
   quotient is exact from their upper 64, and only the lowest 32 bits of quotient * P are wanted. */
#define REDUCE_BODY                                                                                   \
    __m128i k = _mm_loadu_si128((const __m128i *)c->reduce);                                          \
    __m128i w = _mm_xor_si128(_mm_clmulepi64_si128(v, k, 0x00), _mm_srli_si128(v, 8));                \
    __m128i q = _mm_clmulepi64_si128(w, k, 0x10);                                                     \
    __m128i r = _mm_clmulepi64_si128(q, _mm_loadl_epi64((const __m128i *)&c->reduce[2]), 0x00);       \
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(w, r), 2)

/* ---- PCLMULQDQ: 64 bytes a step ------------------------------------------------------------------ */

TARGET_CLMUL INLINE uint32_t reduce128(__m128i v, const struct crc_constants *c) {
    REDUCE_BODY;
}

TARGET_CLMUL INLINE __m128i fold128(__m128i v, const uint64_t *pair) {
    __m128i k = _mm_loadu_si128((const __m128i *)pair);
    return _mm_xor_si128(_mm_clmulepi64_si128(v, k, 0x00), _mm_clmulepi64_si128(v, k, 0x11));
}

TARGET_CLMUL INLINE __m128i load128(const uint8_t *p) {
    return _mm_loadu_si128((const __m128i *)p);
}

/* Byte i of the window at [16 - shift] selects byte i - shift; a set high bit gives zero. */
static const uint8_t shuffle_window[48] = {
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
    0,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,   15,
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
};

TARGET_CLMUL INLINE uint32_t update_clmul(uint32_t state, const uint8_t *p, size_t n,
                                          const struct crc_constants *c) {
    size_t head = ((n - 1) & 63) + 1, first = ((head - 1) & 15) + 1;
    __m128i running = _mm_cvtsi32_si128((int)state), zero = _mm_setzero_si128();
    __m128i padded = _mm_shuffle_epi8(_mm_xor_si128(load128(p), running), load128(shuffle_window + first));
    /* With fewer than four odd bytes the rest of the running CRC belongs to the next block. */
    __m128i spill = _mm_shuffle_epi8(running, load128(shuffle_window + 16 + first));
    __m128i a = zero, b = zero, d = zero, e = padded;
    const uint8_t *end = p + n;
    p += first;
    switch ((head - first) >> 4) {
    case 3:
        a = padded;
        b = _mm_xor_si128(load128(p), spill);
        d = load128(p + 16);
        e = load128(p + 32);
        p += 48;
        break;
    case 2:
        b = padded;
        d = _mm_xor_si128(load128(p), spill);
        e = load128(p + 16);
        p += 32;
        break;
    case 1:
        d = padded;
        e = _mm_xor_si128(load128(p), spill);
        p += 16;
        break;
    default:
        if (p < end) { /* the first whole block comes in the loop */
            a = _mm_xor_si128(load128(p), spill);
            b = load128(p + 16);
            d = load128(p + 32);
            e = _mm_xor_si128(load128(p + 48), fold128(padded, c->step128));
            p += 64;
        }
    }
    while (p < end) {
        a = _mm_xor_si128(fold128(a, c->step128), load128(p));
        b = _mm_xor_si128(fold128(b, c->step128), load128(p + 16));
        d = _mm_xor_si128(fold128(d, c->step128), load128(p + 32));
        e = _mm_xor_si128(fold128(e, c->step128), load128(p + 48));
        p += 64;
    }
    a = _mm_xor_si128(fold128(a, c->window128[0]), fold128(b, c->window128[1]));
    return reduce128(_mm_xor_si128(_mm_xor_si128(a, fold128(d, c->window128[2])), e), c);
}

TARGET_CLMUL static uint32_t crc32_clmul(uint32_t state, const uint8_t *p, size_t n) {
    if (n < 16)
        return update_sliced(state, p, n, &crc32_constants);
    return update_clmul(state, p, n, &crc32_constants);
}

/* ---- SSE4.2: the processor's own CRC-32C, three lanes at once ------------------------------------ */

TARGET_CLMUL INLINE uint64_t load64(const uint8_t *p) {
    uint64_t value;
    memcpy(&value, p, 8);
    return value;
}

TARGET_CLMUL INLINE uint64_t jump_lane(uint64_t state, uint32_t jump) {
    return (uint64_t)_mm_cvtsi128_si64(
        _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)(uint32_t)state), _mm_cvtsi32_si128((int)jump), 0x00));
}

TARGET_CLMUL static uint32_t crc32c_sse42(uint32_t state, const uint8_t *p, size_t n) {
    const uint32_t *jumps = crc32c_constants.lane_jump;
    uint64_t a = state;
    while (n >= 72) {
        size_t words = n / 24 < CRC32C_LANE_WORDS ? n / 24 : CRC32C_LANE_WORDS, last = 8 * (words - 1);
        const uint8_t *q = p + 8 * words, *r = q + 8 * words;
        uint64_t b = 0, c = 0;
        for (size_t at = 0; at < last; at += 8) {
            a = _mm_crc32_u64(a, load64(p + at));
            b = _mm_crc32_u64(b, load64(q + at));
            c = _mm_crc32_u64(c, load64(r + at));
        }
        a = _mm_crc32_u64(a, load64(p + last));
        b = _mm_crc32_u64(b, load64(q + last));
        a = jump_lane(a, jumps[2 * words]) ^ jump_lane(b, jumps[words]);
        a = _mm_crc32_u64(c, load64(r + last) ^ a);
        p += 24 * words;
        n -= 24 * words;
    }
    for (; n >= 8; n -= 8, p += 8)
        a = _mm_crc32_u64(a, load64(p));
    state = (uint32_t)a;
    if (n & 4) {
        state = _mm_crc32_u32(state, load_le32(p));
        p += 4;
    }
    for (n &= 3; n > 0; n--)
        state = _mm_crc32_u8(state, *p++);
    return state;
}

/* ---- VPCLMULQDQ on 512 bits: 256 bytes a step ---------------------------------------------------- */

TARGET_VCLMUL INLINE uint32_t reduce128_wide(__m128i v, const struct crc_constants *c) {
    REDUCE_BODY;
}

TARGET_VCLMUL INLINE __m512i fold512(__m512i v, __m512i k, __m512i next) {
    __m512i first = _mm512_clmulepi64_epi128(v, k, 0x00), second = _mm512_clmulepi64_epi128(v, k, 0x11);
    return _mm512_ternarylogic_epi64(first, second, next, 0x96); /* exclusive or of the three */
}

TARGET_VCLMUL INLINE __m512i load512(const uint8_t *p) {
    return _mm512_loadu_si512((const void *)p);
}

TARGET_VCLMUL INLINE __m512i window512(const struct crc_constants *c, int block) {
    return _mm512_loadu_si512((const void *)c->window512[block]);
}

TARGET_VCLMUL INLINE uint32_t reduce512(__m512i v, const struct crc_constants *c) {
    __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
    return reduce128_wide(_mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)), c);
}

/* More than 256 bytes: `blocks` of the first window, then whole windows. `padded` is the first block. */
TARGET_VCLMUL INLINE uint32_t update_windows(__m512i padded, __m512i spill, const uint8_t *p, size_t blocks,
                                             const uint8_t *end, const struct crc_constants *c) {
    __m512i step = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)c->step512));
    __m512i zero = _mm512_setzero_si512(), a = zero, b = zero, d = zero, e;
    switch (blocks) {
    case 4:
        a = padded;
        b = _mm512_xor_si512(load512(p), spill);
        d = load512(p + 64);
        e = load512(p + 128);
        break;
    case 3:
        b = padded;
        d = _mm512_xor_si512(load512(p), spill);
        e = load512(p + 64);
        break;
    case 2:
        d = padded;
        e = _mm512_xor_si512(load512(p), spill);
        break;
    default:
        a = _mm512_xor_si512(load512(p), spill);
        b = load512(p + 64);
        d = load512(p + 128);
        e = fold512(padded, step, load512(p + 192));
        p += 256;
    }
    for (p += 64 * (blocks - 1); p < end; p += 256) {
        a = fold512(a, step, load512(p));
        b = fold512(b, step, load512(p + 64));
        d = fold512(d, step, load512(p + 128));
        e = fold512(e, step, load512(p + 192));
    }
    a = fold512(a, window512(c, 0), fold512(b, window512(c, 1), zero));
    d = fold512(d, window512(c, 2), fold512(e, window512(c, 3), zero));
    return reduce512(_mm512_xor_si512(a, d), c);
}

/* More than WIDE_MIN_BYTES, so that up to 256 bytes are always four blocks. */
TARGET_VCLMUL INLINE uint32_t update_vclmul(uint32_t state, const uint8_t *p, size_t n,
                                            const struct crc_constants *c) {
    size_t head = ((n - 1) & 255) + 1, first = ((head - 1) & 63) + 1;
    size_t blocks = (head + 63) >> 6, at = 64 - first;
    unsigned shift = (unsigned)(at & 3) * 8;
    __m512i running = _mm512_set1_epi32((int)((state << shift) | (state >> ((32 - shift) & 31))));
    __m512i zero = _mm512_setzero_si512(), spill, sum;
    const uint8_t *end = p + n;
    /* Bytes that the mask leaves out are never touched, so the address may lie before the buffer. */
    __m512i padded = _mm512_maskz_loadu_epi8(~0ull << at, (const void *)((uintptr_t)p - at));
    padded = _mm512_xor_si512(padded, _mm512_maskz_mov_epi8(0xFull << at, running));
    spill = _mm512_maskz_mov_epi8((0xFull >> 1) >> (63 - at), running);
    p += first;
    if (n > 256)
        return update_windows(padded, spill, p, blocks, end, c);
    sum = fold512(padded, window512(c, 0), zero);
    sum = fold512(_mm512_xor_si512(load512(p), spill), window512(c, 1), sum);
    sum = fold512(load512(p + 64), window512(c, 2), sum);
    return reduce512(fold512(load512(p + 128), window512(c, 3), sum), c);
}

/* Below these sizes the narrow kernels are faster: their chain of dependent steps is shorter. */
TARGET_VCLMUL static uint32_t crc32_vclmul(uint32_t state, const uint8_t *p, size_t n) {
    if (n > WIDE_MIN_BYTES)
        return update_vclmul(state, p, n, &crc32_constants);
    return crc32_clmul(state, p, n);
}

TARGET_VCLMUL static uint32_t crc32c_vclmul(uint32_t state, const uint8_t *p, size_t n) {
    if (n > WIDE_MIN_BYTES)
        return update_vclmul(state, p, n, &crc32c_constants);
    return crc32c_sse42(state, p, n);
}

#endif /* DIGEST_X86 */

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
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("pclmul") || !__builtin_cpu_supports("sse4.2"))
        return;
    use_kernels("pclmulqdq+sse4.2", "crc32-pclmulqdq", crc32_clmul, "crc32c-sse4.2", crc32c_sse42);
    if (!__builtin_cpu_supports("vpclmulqdq") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl"))
        return;
    use_kernels("vpclmulqdq", "crc32-vpclmulqdq", crc32_vclmul, "crc32c-vpclmulqdq", crc32c_vclmul);
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
