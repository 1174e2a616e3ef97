package interop;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.api.CreateAdvBuilder;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.WriteAdvHandle;

/** Writer with explicit entry ids: {@code --zk H:P --ids 0,2,1,3 --size B [--ledger L] [--e --qw --qa
 * --digest --password]}. */
public final class Adv {
    public static void main(String[] argv) throws Exception {
        Args args = new Args(argv);
        BookKeeper client = Kit.client(args);
        CreateAdvBuilder create = client.newCreateLedgerOp()
                .withEnsembleSize(args.num("e", 3)).withWriteQuorumSize(args.num("qw", 3))
                .withAckQuorumSize(args.num("qa", 2)).withDigestType(DigestType.valueOf(args.get("digest",
                        "CRC32C")))
                .withPassword(Kit.password(args)).makeAdv();
        if (args.has("ledger")) {
            create = create.withLedgerId(args.lng("ledger", 0));
        }
        WriteAdvHandle handle;
        try {
            handle = create.execute().get();
        } catch (Exception e) {
            Kit.fail(e);
            return;
        }
        Kit.json("ledger", handle.getId());
        int[] sizes = Write.sizes(args.get("size", "100"));
        List<Long> ids = new ArrayList<>();
        List<CompletableFuture<Long>> pending = new ArrayList<>();
        for (String id : args.need("ids").split(",")) {
            long entry = Long.parseLong(id);
            ids.add(entry);
            pending.add(handle.writeAsync(entry,
                    Kit.payload(args.lng("seed", 0), entry, sizes[(int) (entry % sizes.length)])));
        }
        for (int i = 0; i < ids.size(); i++) {
            try {
                pending.get(i).get();
                Kit.json("added", ids.get(i), "lac", handle.getLastAddConfirmed());
            } catch (Exception e) {
                Kit.json("entry", ids.get(i), "failure", Kit.failure(e));
            }
        }
        handle.close();
        Kit.json("closed", handle.getId(), "lac", handle.getLastAddConfirmed(), "length", handle.getLength());
        Kit.close(client);
        System.exit(0);
    }
}
