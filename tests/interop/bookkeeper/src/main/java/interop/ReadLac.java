package interop;

import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.LastConfirmedAndEntry;

/**
 * All LAC queries of an open ledger: {@code --zk H:P --ledger L}. With {@code --follow --timeout MS} it
 * long-polls and
 * prints each new entry until nothing comes for that time.
 */
public final class ReadLac {
    public static void main(String[] argv) throws Exception {
        Args args = new Args(argv);
        BookKeeper client = Kit.client(args);
        try {
            LedgerHandle handle = client.openLedgerNoRecovery(args.lng("ledger", -1), Kit.digest(args),
                    Kit.password(args));
            Kit.json("atOpen", handle.getLastAddConfirmed(), "readLastConfirmed", handle.readLastConfirmed(),
                    "tryReadLastConfirmed", handle.tryReadLastConfirmed(),
                    "readExplicitLastConfirmed", handle.readExplicitLastConfirmed(), "closed",
                            handle.isClosed());
            long timeout = args.lng("timeout", 1000);
            while (args.has("follow")) {
                long want = handle.getLastAddConfirmed() + 1;
                LastConfirmedAndEntry got = handle.readLastAddConfirmedAndEntryAsync(want, timeout, false)
                        .get(timeout * 5 + 10000, TimeUnit.MILLISECONDS);
                Kit.json("asked", want, "lac", got.getLastAddConfirmed(), "entryId",
                        got.hasEntry() ? got.getEntry().getEntryId() : -1,
                        "size", got.hasEntry() ? got.getEntry().getEntryBytes().length : -1);
                if (!got.hasEntry()) {
                    break;
                }
            }
        } catch (Exception e) {
            Kit.fail(e);
        }
        Kit.close(client);
        System.exit(0);
    }
}
