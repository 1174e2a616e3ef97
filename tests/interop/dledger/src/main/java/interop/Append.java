package interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Appends over the network.
 *   --group G --peers P [--to ID] --mode sync|async|batch|probe --seed S --count N --min A --max B
 * [--inflight K] [--timeout MS] [--quiet]
 *   [--bench SECONDS]   timed run of equal bodies of --min bytes instead of --count; the first quarter is
 * warm-up
 *   batch: sends the Java client's batch message (--per bodies); a server refuses it, because it decodes
 * it as a single append
 *   probe: appends one body every 10 ms to whatever node leads, for --seconds; prints every gap above
 * --gap ms (fail-over time)
 */
public final class Append {
    private final Args args;
    private final Rpc rpc;
    private final long timeout;
    private final String seed;
    private final int min;
    private final int max;
    private String leader;

    private Append(Args args) throws Exception {
        this.args = args;
        rpc = new Rpc(args.need("group"), args.need("peers"));
        timeout = args.num("timeout", 60_000);
        seed = args.get("seed", "s");
        min = (int) args.num("min", 256);
        max = (int) args.num("max", min);
        leader = args.has("to") ? args.get("to", "") : rpc.waitLeader(args.num("wait-leader", 30_000));
    }

    public static void main(String[] argv) throws Exception {
        Append a = new Append(new Args(argv));
        String mode = a.args.get("mode", "sync");
        if (mode.equals("probe")) {
            a.probe();
        } else if (a.args.has("bench")) {
            a.bench(mode.equals("sync") ? 1 : (int) a.args.num("inflight", 256));
        } else if (mode.equals("batch")) {
            a.batch();
        } else {
            a.many(mode.equals("sync") ? 1 : (int) a.args.num("inflight", 256));
        }
        a.rpc.close();
        System.exit(0);
    }

    private JSONObject request(byte[] body) {
        JSONObject r = rpc.request(leader);
        r.put("body", body);
        return r;
    }

    private void many(int inflight) throws Exception {
        long count = args.num("count", 1);
        long from = args.num("from", 0);
        Semaphore slots = new Semaphore(inflight);
        AtomicLong ok = new AtomicLong();
        for (long i = from; i < from + count; i++) {
            long n = i;
            slots.acquire();
            rpc.send(Rpc.APPEND, request(Body.of(seed, i, min, max)), timeout).whenComplete((r, e) -> {
                if (r != null && r.getIntValue("code") == 200) {
                    ok.incrementAndGet();
                }
                if (!args.has("quiet")) {
                    Out.json("body", n, "answer", r, "error", e == null ? null : e.toString());
                }
                slots.release();
            });
        }
        slots.acquire(inflight);
        Out.json("event", "done", "seed", seed, "from", from, "count", count, "ok", ok.get());
    }

    private void batch() throws Exception {
        JSONObject r = rpc.request(leader);
        JSONArray bodies = new JSONArray();
        for (int i = 0; i < args.num("per", 32); i++) {
            bodies.add(Body.of(seed, i, min, max));
        }
        r.put("batchMsgs", bodies);
        Out.json("answer", rpc.call(Rpc.APPEND, r, timeout));
    }

    private void bench(int inflight) throws Exception {
        long seconds = args.num("bench", 10);
        byte[] body = Body.of("bench", 0, min, min);
        Semaphore slots = new Semaphore(inflight);
        Stats stats = new Stats();
        AtomicLong failed = new AtomicLong();
        long start = System.nanoTime();
        long measured = start + seconds * 250_000_000L;
        long end = start + seconds * 1_000_000_000L;
        boolean warm = false;
        for (long now = start; now < end; now = System.nanoTime()) {
            if (!warm && now >= measured) {
                warm = true;
                stats.reset();
                measured = now;
            }
            slots.acquire();
            long sent = System.nanoTime();
            rpc.send(Rpc.APPEND, request(body), timeout).whenComplete((r, e) -> {
                slots.release();
                if (r != null && r.getIntValue("code") == 200) {
                    stats.add(System.nanoTime() - sent);
                } else {
                    failed.incrementAndGet();
                }
            });
        }
        double took = (System.nanoTime() - measured) / 1e9;
        Map<String, Object> line = Out.map("event", "bench", "size", min, "inflight", inflight, "failed",
            failed.get());
        line.putAll(stats.summary(took, 1));
        Out.line(JSON.toJSONString(line));
    }

    private void probe() throws Exception {
        long end = System.currentTimeMillis() + args.num("seconds", 60) * 1000;
        long gapMs = args.num("gap", 200);
        byte[] body = Body.of(seed, 0, min, min);
        long last = System.currentTimeMillis();
        String lastLeader = leader;
        Out.json("event", "probing", "leader", leader, "ms", last);
        while (System.currentTimeMillis() < end) {
            boolean ok = false;
            try {
                ok = leader != null && rpc.call(Rpc.APPEND, request(body), 400).getIntValue("code") == 200;
            } catch (Exception ignored) {
                // counts as failed
            }
            long now = System.currentTimeMillis();
            if (ok) {
                if (now - last > gapMs) {
                    Out.json("event", "gap", "gap_ms", now - last, "from", lastLeader, "to", leader,
                        "last_ok_ms", last, "ms", now);
                }
                last = now;
                lastLeader = leader;
            } else {
                leader = rpc.leader(100);
            }
            Thread.sleep(10);
        }
    }
}
