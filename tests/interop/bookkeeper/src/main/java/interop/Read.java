package interop;

import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;

/**
 * Reads a ledger: {@code --zk H:P --ledger L [--from A] [--to B] [--unconfirmed] [--recover] [--batch N]
 * [--v2]
 * [--digest D] [--password S]}. One JSON line per entry; "length" is the cumulative length in the entry
 * header.
 */
public final class Read {
    public static void main(String[] argv) throws Exception {
        Args args = new Args(argv);
        BookKeeper client = Kit.client(args);
        long ledger = args.lng("ledger", -1);
        try {
            LedgerHandle handle = args.has("recover")
                    ? client.openLedger(ledger, Kit.digest(args), Kit.password(args))
                    : client.openLedgerNoRecovery(ledger, Kit.digest(args), Kit.password(args));
            long from = args.lng("from", 0);
            long to = args.lng("to", handle.getLastAddConfirmed());
            int step = args.num("batch", 100);
            long count = 0;
            for (long at = from; at <= to;) {
                LedgerEntries entries;
                if (args.has("batch")) {
                    entries = (LedgerEntries) handle.getClass()   // by name: releases before 4.17 lack it
                            .getMethod("batchRead", long.class, int.class, long.class).invoke(handle, at,
                                    step, -1L);
                } else {
                    long last = Math.min(to, at + step - 1);
                    entries = args.has("unconfirmed") ? handle.readUnconfirmed(at, last) : handle.read(at,
                            last);
                }
                for (LedgerEntry entry : entries) {
                    byte[] data = entry.getEntryBytes();
                    Kit.json("entryId", entry.getEntryId(), "size", data.length, "length", entry.getLength(),
                            "sha256", Kit.sha256(data), "lac", handle.getLastAddConfirmed());
                    at = entry.getEntryId() + 1;
                    count++;
                }
                entries.close();
            }
            Kit.json("ledger", ledger, "read", count, "lac", handle.getLastAddConfirmed(),
                    "length", handle.getLength(), "closed", handle.isClosed());
        } catch (Exception e) {
            Kit.fail(e);
        }
        Kit.close(client);
        System.exit(0);
    }
}
