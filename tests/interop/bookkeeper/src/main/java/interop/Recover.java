package interop;

import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerHandle;

/** Opens a ledger with recovery (fences and closes it): {@code --zk H:P --ledger L [--digest D] [--password
 * S] [--v2]}. */
public final class Recover {
    public static void main(String[] argv) throws Exception {
        Args args = new Args(argv);
        BookKeeper client = Kit.client(args);
        try {
            long start = System.nanoTime();
            LedgerHandle handle = client.openLedger(args.lng("ledger", -1), Kit.digest(args),
                    Kit.password(args));
            Kit.json("ledger", handle.getId(), "lac", handle.getLastAddConfirmed(), "length",
                    handle.getLength(),
                    "closed", handle.isClosed(), "ms", (System.nanoTime() - start) / 1_000_000);
        } catch (Exception e) {
            Kit.fail(e);
        }
        Kit.close(client);
        System.exit(0);
    }
}
