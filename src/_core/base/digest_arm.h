/* Digests on 64-bit Arm: ARMv8's instructions for both CRCs, in three lanes where polynomials can be
   multiplied (PMULL). Included by digest_kernels.h. Not every ARMv8.0 has them: a Raspberry Pi 4 has no
   PMULL. Where the compiler may assume them, as on macOS, nothing is checked. */
#ifndef PYLEDGER_DIGEST_ARM_H
#define PYLEDGER_DIGEST_ARM_H

#include <arm_acle.h>
#include <arm_neon.h>
#if __has_include(<asm/hwcap.h>)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#define TARGET_CRC __attribute__((target("+crc")))
#define TARGET_PMULL __attribute__((target("+crc+aes")))

static int has_crc_instructions(void) {
#if defined(__ARM_FEATURE_CRC32)
    return 1;
#elif defined(HWCAP_CRC32)
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#else
    return 0;
#endif
}

static int has_pmull(void) {
#if defined(__ARM_FEATURE_AES)
    return 1;
#elif defined(HWCAP_PMULL)
    return (getauxval(AT_HWCAP) & HWCAP_PMULL) != 0;
#else
    return 0;
#endif
}

TARGET_CRC static uint32_t crc32_armv8(uint32_t state, const uint8_t *p, size_t n) {
    ONE_LANE(__crc32d, __crc32w, __crc32b);
}

TARGET_CRC static uint32_t crc32c_armv8(uint32_t state, const uint8_t *p, size_t n) {
    ONE_LANE(__crc32cd, __crc32cw, __crc32cb);
}

TARGET_PMULL INLINE uint64_t jump_lane(uint64_t state, uint32_t jump) {
    return vgetq_lane_u64(vreinterpretq_u64_p128(vmull_p64((poly64_t)state, (poly64_t)jump)), 0);
}

TARGET_PMULL static uint32_t crc32_pmull(uint32_t state, const uint8_t *p, size_t n) {
    THREE_LANES(__crc32d, jump_lane, &crc32_constants);
    ONE_LANE(__crc32d, __crc32w, __crc32b);
}

TARGET_PMULL static uint32_t crc32c_pmull(uint32_t state, const uint8_t *p, size_t n) {
    THREE_LANES(__crc32cd, jump_lane, &crc32c_constants);
    ONE_LANE(__crc32cd, __crc32cw, __crc32cb);
}

#endif
