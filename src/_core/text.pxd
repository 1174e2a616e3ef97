# UTF-8 as Arrow wants it: what is ill-formed becomes U+FFFD, one for each maximal ill-formed part, which is
# what Java and Python's errors="replace" do.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    /* Length of the sequence at p, or minus the length of the ill-formed part there. */
    static inline int utf8_step(const uint8_t *p, const uint8_t *end) {
        uint8_t lead = p[0], low = 0x80, high = 0xBF;
        int more, i;
        if (lead < 0x80) return 1;
        if (lead < 0xC2 || lead > 0xF4) return -1;
        more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
        if (lead == 0xE0) low = 0xA0;
        else if (lead == 0xED) high = 0x9F;
        else if (lead == 0xF0) low = 0x90;
        else if (lead == 0xF4) high = 0x8F;
        for (i = 1; i <= more; i++) {
            if (p + i >= end || p[i] < low || p[i] > high) return -i;
            low = 0x80; high = 0xBF;
        }
        return more + 1;
    }

    static inline int is_ascii(const uint8_t *p, int64_t n) {
        uint64_t bits = 0, word;
        int64_t i = 0;
        for (; i + 8 <= n; i += 8) { memcpy(&word, p + i, 8); bits |= word; }
        for (; i < n; i++) bits |= (uint64_t)p[i] << 56 | p[i];
        return (bits & 0x8080808080808080ull) == 0;
    }

    static int is_utf8(const uint8_t *p, int64_t n) {
        const uint8_t *end = p + n;
        int step;
        if (is_ascii(p, n)) return 1;
        while (p < end) {
            step = utf8_step(p, end);
            if (step < 0) return 0;
            p += step;
        }
        return 1;
    }

    /* Copy n bytes as well-formed UTF-8; `out` must hold 3 n bytes. Returns the bytes written. */
    static int64_t replace_ill_formed(uint8_t *out, const uint8_t *p, int64_t n) {
        const uint8_t *end = p + n;
        uint8_t *begin = out;
        int step;
        while (p < end) {
            step = utf8_step(p, end);
            if (step > 0) { memcpy(out, p, (size_t)step); out += step; p += step; }
            else { memcpy(out, "\\xEF\\xBF\\xBD", 3); out += 3; p -= step; }
        }
        return out - begin;
    }

    /* A hash of short names: their length, first and last eight bytes. */
    static inline uint64_t hash_name(const uint8_t *p, int64_t n, uint64_t seed) {
        uint64_t a = 0, b = 0;
        if (n >= 8) { memcpy(&a, p, 8); memcpy(&b, p + n - 8, 8); }
        else if (n >= 4) { uint32_t x, y; memcpy(&x, p, 4); memcpy(&y, p + n - 4, 4); a = x; b = y; }
        else if (n > 0) { a = p[0] | (uint64_t)p[n / 2] << 8; b = p[n - 1]; }
        a = (a ^ seed) * 0x9E3779B97F4A7C15ull;
        b = (b ^ (uint64_t)n) * 0xC2B2AE3D27D4EB4Full;
        a ^= (b << 31 | b >> 33);
        a *= 0x9E3779B97F4A7C15ull;
        return a ^ (a >> 29);
    }
    """
    bint is_utf8(const uint8_t* p, int64_t n) noexcept nogil
    int64_t replace_ill_formed(uint8_t* out, const uint8_t* p, int64_t n) noexcept nogil
    uint64_t hash_name(const uint8_t* p, int64_t n, uint64_t seed) noexcept nogil
