package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.api.CreateBuilder;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.WriteFlag;
import org.apache.bookkeeper.client.api.WriteHandle;

/**
 * Creates a ledger and appends: {@code --zk H:P --e 3 --qw 3 --qa 2 --digest CRC32|CRC32C|MAC|DUMMY
 * --password S
 * --count N --size B[,B…] [--seed S] [--window W] [--deferred] [--explicit-lac MS] [--custom k=v]… [--v2]
 * [--verbose]
 * [--keep-open]}.
 * With --keep-open the ledger stays open and commands are read from stdin, one JSON answer each:
 * {@code add N [SIZE]}, {@code force}, {@code lac}, {@code close}, {@code quit} (leave without closing).
 */
public final class Write {
    private static long next;
    private static int[] sizes;
    private static long seed;
    private static boolean verbose;

    public static void main(String[] argv) throws Exception {
        Args args = new Args(argv);
        seed = args.lng("seed", 0);
        verbose = args.has("verbose");
        sizes = sizes(args.get("size", "100"));
        BookKeeper client = Kit.client(args);
        Map<String, byte[]> custom = new HashMap<>();
        for (String pair : args.all("custom")) {
            custom.put(pair.split("=")[0], pair.split("=", 2)[1].getBytes(StandardCharsets.UTF_8));
        }
        CreateBuilder create = client.newCreateLedgerOp()
                .withEnsembleSize(args.num("e", 3)).withWriteQuorumSize(args.num("qw", 3))
                .withAckQuorumSize(args.num("qa", 2)).withDigestType(DigestType.valueOf(args.get("digest",
                        "CRC32C")))
                .withPassword(Kit.password(args)).withCustomMetadata(custom);
        if (args.has("deferred")) {
            create = create.withWriteFlags(WriteFlag.DEFERRED_SYNC);
        }
        WriteHandle handle;
        try {
            handle = create.execute().get();
        } catch (Exception e) {
            Kit.fail(e);
            return;
        }
        Kit.json("ledger", handle.getId(), "ensemble",
                handle.getLedgerMetadata().getEnsembleAt(0).toString());
        add(handle, args.num("count", 10), args.num("window", 100));
        if (args.has("keep-open")) {
            serve(handle, args.num("window", 100));
        } else if (!args.has("no-close")) {
            close(handle);
        }
        Kit.close(client);
        System.exit(0);
    }

    static int[] sizes(String list) {
        return java.util.Arrays.stream(list.split(",")).mapToInt(Integer::parseInt).toArray();
    }

    private static void add(WriteHandle handle, int count, int window) throws Exception {
        Deque<CompletableFuture<Long>> pending = new ArrayDeque<>();
        long errors = 0;
        Map<String, Object> first = null;
        for (int i = 0; i < count || !pending.isEmpty();) {
            if (i < count && pending.size() < window) {
                long id = next++;
                pending.add(handle.appendAsync(Kit.payload(seed, id, sizes[(int) (id % sizes.length)])));
                i++;
                continue;
            }
            try {
                long id = pending.remove().get();
                if (verbose) {
                    Kit.json("added", id, "lac", handle.getLastAddConfirmed());
                }
            } catch (Exception e) {
                errors++;
                first = first == null ? Kit.failure(e) : first;
            }
        }
        Map<String, Object> line = Kit.map("wrote", count - errors, "failed", errors,
                "lac", handle.getLastAddConfirmed(), "length", handle.getLength());
        if (first != null) {
            line.putAll(first);
        }
        Kit.json(line);
    }

    private static void close(WriteHandle handle) throws Exception {
        try {
            handle.close();
            Kit.json("closed", handle.getId(), "lac", handle.getLastAddConfirmed(), "length",
                    handle.getLength());
        } catch (Exception e) {
            Kit.json(Kit.failure(e));
        }
    }

    private static void serve(WriteHandle handle, int window) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.trim().split("\\s+");
            switch (words[0]) {
                case "add" -> {
                    if (words.length > 2) {
                        sizes = sizes(words[2]);
                    }
                    add(handle, Integer.parseInt(words[1]), window);
                }
                case "force" -> {
                    try {
                        handle.force().get();
                        Kit.json("forced", true, "lac", handle.getLastAddConfirmed());
                    } catch (Exception e) {
                        Kit.json(Kit.failure(e));
                    }
                }
                case "lac" -> Kit.json("lac", handle.getLastAddConfirmed());
                case "close" -> {
                    close(handle);
                    return;
                }
                case "quit" -> Runtime.getRuntime().halt(0);
                default -> Kit.json("error", "unknown command");
            }
        }
    }
}
