package interop;

import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerHandle;

/**
 * Fencing shown with two clients: one writes and stays open, the other opens with recovery, then the first
 * adds again.
 * {@code --zk H:P [--e --qw --qa --digest --password --count N --size B --v2]}.
 */
public final class Fence {
    public static void main(String[] argv) throws Exception {
        Args args = new Args(argv);
        BookKeeper one = Kit.client(args);
        BookKeeper two = Kit.client(args);
        LedgerHandle writer = one.createLedger(args.num("e", 3), args.num("qw", 3), args.num("qa", 2),
                Kit.digest(args), Kit.password(args));
        int count = args.num("count", 5);
        for (int i = 0; i < count; i++) {
            writer.addEntry(Kit.payload(args.lng("seed", 0), i, args.num("size", 100)));
        }
        Kit.json("ledger", writer.getId(), "writerLac", writer.getLastAddConfirmed());
        LedgerHandle reader = two.openLedger(writer.getId(), Kit.digest(args), Kit.password(args));
        Kit.json("recovered", reader.getId(), "lac", reader.getLastAddConfirmed(), "closed",
                reader.isClosed());
        try {
            long id = writer.addEntry(Kit.payload(args.lng("seed", 0), count, args.num("size", 100)));
            Kit.json("UNEXPECTED", "add succeeded", "entryId", id);
        } catch (Exception e) {
            Kit.json("add", Kit.failure(e));
        }
        try {
            writer.close();
            Kit.json("writerClose", "OK");
        } catch (Exception e) {
            Kit.json("writerClose", Kit.failure(e));
        }
        Kit.close(one);
        Kit.close(two);
        System.exit(0);
    }
}
