package interop;

import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * Measures adds and reads: {@code --zk H:P [--count N] [--size B] [--window W] [--lone N] [--step N]
 * [--e 3 --qw 3 --qa 2] [--v2]}. Each is done three times, so that what matters is compiled; the best
 * counts. The last line has adds and reads a second, and the median time of an add with nothing else under
 * way.
 */
public final class Bench {
    private static final int TURNS = 3;

    public static void main(String[] argv) throws Exception {
        Args args = new Args(argv);
        BookKeeper client = Kit.client(args);
        int count = args.num("count", 100_000);
        byte[] payload = Kit.payload(0, 0, args.num("size", 256));
        try {
            double adds = 0;
            long ledger = -1;
            for (int turn = 0; turn < TURNS; turn++) {
                WriteHandle handle = create(client, args);
                long begin = System.nanoTime();
                add(handle, payload, count, args.num("window", 1000));
                adds = Math.max(adds, 1e9 * count / (System.nanoTime() - begin));
                ledger = handle.getId();
                handle.close();
            }
            double lone = lone(create(client, args), payload, args.num("lone", 0));
            double reads = 0;
            double batches = 0;
            ClientConfiguration old = Kit.clientConf(args);
            old.setUseV2WireProtocol(true);   // version 3 has no batched reads
            BookKeeper batching = new BookKeeper(old);
            for (int turn = 0; turn < TURNS; turn++) {
                reads = Math.max(reads, read(client, args, ledger, count, false));
                if (args.num("e", 3) == args.num("qw", 3)) {
                    batches = Math.max(batches, read(batching, args, ledger, count, true));
                }
            }
            Kit.close(batching);
            Kit.json("addsPerSecond", adds, "readsPerSecond", reads, "batchReadsPerSecond", batches,
                    "p50Us", lone);
        } catch (Exception e) {
            Kit.fail(e);
        }
        Kit.close(client);
        System.exit(0);
    }

    private static WriteHandle create(BookKeeper client, Args args) throws Exception {
        return client.newCreateLedgerOp().withEnsembleSize(args.num("e", 3))
                .withWriteQuorumSize(args.num("qw", 3)).withAckQuorumSize(args.num("qa", 2))
                .withDigestType(DigestType.CRC32C).withPassword(Kit.password(args)).execute().get();
    }

    private static void add(WriteHandle handle, byte[] payload, int count, int window) throws Exception {
        Deque<CompletableFuture<Long>> pending = new ArrayDeque<>();
        for (int i = 0; i < count; i++) {
            if (pending.size() == window) {
                pending.remove().get();
            }
            pending.add(handle.appendAsync(payload));
        }
        for (CompletableFuture<Long> one : pending) {
            one.get();
        }
    }

    private static double lone(WriteHandle handle, byte[] payload, int count) throws Exception {
        double[] taken = new double[count];
        for (int i = 0; i < count; i++) {
            long begin = System.nanoTime();
            handle.append(payload);
            taken[i] = (System.nanoTime() - begin) / 1e3;
        }
        handle.close();
        Arrays.sort(taken);
        return count == 0 ? 0 : taken[count / 2];
    }

    private static double read(BookKeeper client, Args args, long ledger, int count, boolean batched)
            throws Exception {
        ReadHandle handle = client.newOpenLedgerOp().withLedgerId(ledger).withDigestType(DigestType.CRC32C)
                .withPassword(Kit.password(args)).execute().get();
        int step = args.num("step", 1000);
        long bytes = 0;
        long begin = System.nanoTime();
        for (long at = 0; at < count;) {
            try (LedgerEntries entries = batched ? handle.batchRead(at, step, -1)
                    : handle.read(at, Math.min(count, at + step) - 1)) {
                for (LedgerEntry entry : entries) {
                    bytes += entry.getEntryBuffer().readableBytes();
                    at = entry.getEntryId() + 1;
                }
            }
        }
        double rate = 1e9 * count / (System.nanoTime() - begin);
        if (bytes != (long) count * args.num("size", 256)) {
            throw new IllegalStateException(bytes + " bytes were read");
        }
        handle.close();
        return rate;
    }
}
