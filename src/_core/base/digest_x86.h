/* Digests on x86-64: carry-less multiplication on 128 and on 512 bits, and SSE4.2's CRC-32C. Included by
   digest_kernels.h. */
#ifndef PYLEDGER_DIGEST_X86_H
#define PYLEDGER_DIGEST_X86_H

#include <cpuid.h>
#include <immintrin.h>

/* Bits of XCR0: the system keeps all registers of AVX-512: XMM, YMM, masks, ZMM in two parts. */
#define XCR0_AVX512 0xE6u

static int has_clmul_and_sse42(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_PCLMUL) && (c & bit_SSE4_2);
}

/* cpuid and not __builtin_cpu_supports, whose table zig's runtime library leaves empty. */
static int has_wide_clmul(void) {
    const unsigned wanted = bit_AVX512F | bit_AVX512BW | bit_AVX512VL;
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return 0;
    __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    if ((a & XCR0_AVX512) != XCR0_AVX512)
        return 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & wanted) == wanted && (c & bit_VPCLMULQDQ);
}

/* The instructions of crc32 are a part of SSE4.2 for gcc, and a set of their own for clang. */
#ifdef __clang__
#define TARGET_SSE42 "sse4.2,crc32"
#else
#define TARGET_SSE42 "sse4.2"
#endif
#define TARGET_CLMUL __attribute__((target(TARGET_SSE42 ",pclmul")))
#define TARGET_VCLMUL __attribute__((target("avx512f,avx512bw,avx512vl,vpclmulqdq,pclmul," TARGET_SSE42)))

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

TARGET_CLMUL INLINE uint64_t jump_lane(uint64_t state, uint32_t jump) {
    return (uint64_t)_mm_cvtsi128_si64(
        _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)(uint32_t)state), _mm_cvtsi32_si128((int)jump), 0x00));
}

TARGET_CLMUL static uint32_t crc32c_sse42(uint32_t state, const uint8_t *p, size_t n) {
    THREE_LANES(_mm_crc32_u64, jump_lane, &crc32c_constants);
    ONE_LANE(_mm_crc32_u64, _mm_crc32_u32, _mm_crc32_u8);
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

#endif
