package interop;

import java.util.Arrays;
import java.util.Map;

/** Latency samples in nanoseconds with exact percentiles. */
final class Stats {
    private long[] ns = new long[1 << 16];
    private int n;

    synchronized void add(long value) {
        if (n == ns.length) {
            ns = Arrays.copyOf(ns, n * 2);
        }
        ns[n++] = value;
    }

    synchronized void reset() {
        n = 0;
    }

    /** Sample count times perSample divided by the wall time, and percentiles in milliseconds. */
    synchronized Map<String, Object> summary(double seconds, int perSample) {
        long[] s = Arrays.copyOf(ns, n);
        Arrays.sort(s);
        return Out.map("entries", (long) n * perSample, "seconds", round(seconds), "tps",
            Math.round(n * perSample / seconds),
            "p50_ms", at(s, 0.50), "p90_ms", at(s, 0.90), "p99_ms", at(s, 0.99), "max_ms", at(s, 1.0));
    }

    private static Double at(long[] s, double q) {
        return s.length == 0 ? null : round(s[(int) Math.min(s.length - 1, Math.floor(q * s.length))] / 1e6);
    }

    private static double round(double v) {
        return Math.round(v * 1000) / 1000.0;
    }
}
