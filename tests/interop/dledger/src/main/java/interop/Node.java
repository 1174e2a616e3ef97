package interop;

import com.alibaba.fastjson.JSON;
import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerLeaderElector;
import io.openmessaging.storage.dledger.DLedgerServer;
import io.openmessaging.storage.dledger.MemberState;
import io.openmessaging.storage.dledger.protocol.AppendEntryRequest;
import io.openmessaging.storage.dledger.protocol.AppendEntryResponse;
import io.openmessaging.storage.dledger.protocol.BatchAppendEntryRequest;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;

/**
 * One or more DLedger servers in this process.
 *   --group G --id n0[,n1...] --peers 'n0-127.0.0.1:P0;...' --store DIR [--store-type FILE|MEMORY]
 *   [--set property=value ...]   any DLedgerConfig property
 *   [--report MS]                status line period, default 1000, 0 = only on role change or request
 * Prints READY PORT..., then JSON lines. Commands on stdin (first word may be "ID:" to choose a server of
 * this process):
 *   status
 *   append SEED COUNT MIN MAX INFLIGHT       single appends inside the leader's process
 *   batch SEED COUNT PER MIN MAX INFLIGHT    COUNT batch appends of PER bodies each (possible only inside
 * the leader's process)
 *   bench SIZE PER INFLIGHT SECONDS          timed appends, PER 1 = single, more = batch
 *   quit
 */
public final class Node {
    private static final Map<String, DLedgerServer> SERVERS = new LinkedHashMap<>();

    private Node() {
    }

    public static void main(String[] argv) throws Exception {
        Args args = new Args(argv);
        String peers = args.need("peers");
        StringBuilder ready = new StringBuilder("READY");
        for (String id : args.need("id").split(",")) {
            DLedgerConfig config = new DLedgerConfig();
            config.setGroup(args.need("group"));
            config.setSelfId(id);
            config.setPeers(peers);
            config.setStoreBaseDir(args.need("store"));
            config.setStoreType(args.get("store-type", "FILE"));
            for (String kv : args.all("set")) {
                int eq = kv.indexOf('=');
                Gen.set(config, kv.substring(0, eq), kv.substring(eq + 1));
            }
            DLedgerServer server = new DLedgerServer(config);
            Loopback.confine(server);
            server.getDLedgerLeaderElector()
                .addRoleChangeHandler(new DLedgerLeaderElector.RoleChangeHandler() {
                @Override
                public void handle(long term, MemberState.Role role) {
                    Out.json("event", "role", "id", id, "role", role.name(), "term", term, "ms",
                        System.currentTimeMillis());
                }

                @Override
                public void startup() {
                }

                @Override
                public void shutdown() {
                }
            });
            SERVERS.put(id, server);
        }
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            SERVERS.values().forEach(DLedgerServer::shutdown);
            SERVERS.values().forEach(s -> status("stopped", s));
        }));
        for (DLedgerServer server : SERVERS.values()) {
            server.startup();
            ready.append(' ').append(server.getListenAddress().replaceAll(".*:", ""));
        }
        Out.line(ready.toString());
        long period = args.num("report", 1000);
        if (period > 0) {
            Thread t = new Thread(() -> report(period), "report");
            t.setDaemon(true);
            t.start();
        }
        commands();
        Thread.currentThread().join();
    }

    private static void report(long period) {
        try {
            while (true) {
                Thread.sleep(period);
                SERVERS.values().forEach(s -> status("status", s));
            }
        } catch (InterruptedException ignored) {
            // process ends
        }
    }

    private static void status(String event, DLedgerServer s) {
        MemberState m = s.getMemberState();
        Out.json("event", event, "id", m.getSelfId(), "role", m.getRole().name(), "term", m.currTerm(),
            "leaderId", m.getLeaderId(),
            "voteFor", m.currVoteFor(), "begin", Gen.begin(s.getDLedgerStore()), "end", Gen.end(s),
                "endTerm", s.getDLedgerStore().getLedgerEndTerm(),
            "committed", Gen.committed(s.getDLedgerStore(), m), "ms", System.currentTimeMillis());
    }

    private static void commands() throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] w = line.trim().split("\\s+");
            DLedgerServer server = SERVERS.values().iterator().next();
            if (w[0].endsWith(":")) {
                server = SERVERS.get(w[0].substring(0, w[0].length() - 1));
                w = java.util.Arrays.copyOfRange(w, 1, w.length);
            }
            try {
                command(server, w);
            } catch (Exception e) {
                Out.json("event", "error", "command", line, "error", e.toString());
            }
        }
    }

    private static void command(DLedgerServer s, String[] w) throws Exception {
        switch (w[0]) {
            case "":
                break;
            case "status":
                status("status", s);
                break;
            case "append":
                append(s, w[1], Long.parseLong(w[2]), 1, Integer.parseInt(w[3]), Integer.parseInt(w[4]),
                    Integer.parseInt(w[5]));
                break;
            case "batch":
                append(s, w[1], Long.parseLong(w[2]), Integer.parseInt(w[3]), Integer.parseInt(w[4]),
                    Integer.parseInt(w[5]), Integer.parseInt(w[6]));
                break;
            case "bench":
                bench(s, Integer.parseInt(w[1]), Integer.parseInt(w[2]), Integer.parseInt(w[3]),
                    Integer.parseInt(w[4]));
                break;
            case "quit":
                System.exit(0);
                break;
            default:
                Out.json("event", "error", "command", String.join(" ", w), "error", "unknown command");
        }
    }

    private static CompletableFuture<AppendEntryResponse> send(DLedgerServer s,
        List<byte[]> bodies) throws Exception {
        AppendEntryRequest r;
        if (bodies.size() == 1) {
            r = new AppendEntryRequest();
            r.setBody(bodies.get(0));
        } else {
            BatchAppendEntryRequest b = new BatchAppendEntryRequest();
            b.setBatchMsgs(bodies);
            r = b;
        }
        r.setGroup(s.getMemberState().getGroup());
        r.setRemoteId(s.getMemberState().getSelfId());
        return s.handleAppend(r);
    }

    private static void append(DLedgerServer s, String seed, long count, int per, int min, int max,
        int inflight) throws Exception {
        Semaphore slots = new Semaphore(inflight);
        long body = 0;
        for (long i = 0; i < count; i++) {
            List<byte[]> bodies = new ArrayList<>();
            for (int k = 0; k < per; k++) {
                bodies.add(Body.of(seed, body++, min, max));
            }
            slots.acquire();
            long first = body - per;
            send(s, bodies).whenComplete((r, e) -> {
                slots.release();
                Out.json("event", "appended", "id", s.getMemberState().getSelfId(), "seed", seed, "body",
                    first, "count", per,
                    "code", r == null ? null : r.getCode(), "index", r == null ? null : r.getIndex(), "pos",
                        r == null ? null : r.getPos(),
                    "term", r == null ? null : r.getTerm(), "error", e == null ? null : e.toString());
            });
        }
        slots.acquire(inflight);
        Out.json("event", "done", "id", s.getMemberState().getSelfId(), "seed", seed, "bodies", body);
    }

    private static void bench(DLedgerServer s, int size, int per, int inflight,
        int seconds) throws Exception {
        List<byte[]> bodies = new ArrayList<>();
        for (int k = 0; k < per; k++) {
            bodies.add(Body.of("bench", k, size, size));
        }
        Semaphore slots = new Semaphore(inflight);
        Stats stats = new Stats();
        long[] failed = new long[1];
        long start = System.nanoTime();
        long warmEnd = start + seconds * 250_000_000L; // first quarter is warm-up
        long end = start + seconds * 1_000_000_000L;
        boolean warm = false;
        for (long now = start; now < end; now = System.nanoTime()) {
            if (!warm && now >= warmEnd) {
                warm = true;
                stats.reset();
                warmEnd = now;
            }
            slots.acquire();
            long sent = System.nanoTime();
            send(s, bodies).whenComplete((r, e) -> {
                slots.release();
                if (r != null && r.getCode() == 200) {
                    stats.add(System.nanoTime() - sent);
                } else {
                    failed[0]++;
                }
            });
        }
        double took = (System.nanoTime() - warmEnd) / 1e9;
        Map<String, Object> line = Out.map("event", "bench", "id", s.getMemberState().getSelfId(), "size",
            size, "per", per, "inflight", inflight, "failed", failed[0]);
        line.putAll(stats.summary(took, per));
        Out.line(JSON.toJSONString(line));
        slots.acquire(inflight);
    }
}
