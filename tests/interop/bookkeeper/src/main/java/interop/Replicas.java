package interop;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.zip.CRC32;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.proto.BookieProtocol;
import org.apache.bookkeeper.util.AvailabilityOfEntriesOfLedger;

/**
 * Asks every bookie of each entry's write set for its own copy: {@code --zk H:P --ledger L [--from A --to
 * B] [--all]}.
 * One JSON line per entry and bookie with result, stored size and CRC-32 of the stored bytes; a last line
 * counts.
 * With --all every bookie of the ensemble is asked, also those which do not stripe the entry. With --list
 * each bookie of
 * the last ensemble is also asked for the list of entries it holds.
 */
public final class Replicas {
    public static void main(String[] argv) throws Exception {
        Args args = new Args(argv);
        BookKeeper client = Kit.client(args);
        long ledger = args.lng("ledger", -1);
        LedgerMetadata m = client.getLedgerMetadata(ledger).get();
        long last = args.lng("to", m.getLastEntryId());
        long good = 0;
        long bad = 0;
        for (long entry = args.lng("from", 0); entry <= last; entry++) {
            List<? extends BookieId> ensemble = m.getEnsembleAt(entry);
            int e = m.getEnsembleSize();
            List<BookieId> ask = new ArrayList<>();
            for (int i = 0; i < (args.has("all") ? e : m.getWriteQuorumSize()); i++) {
                ask.add(ensemble.get((int) ((entry + i) % e)));
            }
            for (int i = 0; i < ask.size(); i++) {
                CompletableFuture<Map<String, Object>> answer = new CompletableFuture<>();
                client.getClientCtx().getBookieClient().readEntry(ask.get(i), ledger, entry,
                        (rc, lid, eid, buffer, ctx) -> answer.complete(line(rc, buffer)), null,
                        BookieProtocol.FLAG_NONE);
                Map<String, Object> line = Kit.map("entryId", entry, "bookie", ask.get(i).toString(),
                        "inWriteSet", i < m.getWriteQuorumSize());
                line.putAll(answer.get(30, TimeUnit.SECONDS));
                Kit.json(line);
                if (line.get("rc").equals(0)) {
                    good++;
                } else {
                    bad++;
                }
            }
        }
        if (args.has("list")) {
            for (BookieId bookie : m.getAllEnsembles().lastEntry().getValue()) {
                Map<String, Object> line = Kit.map("bookie", bookie.toString());
                try {
                    AvailabilityOfEntriesOfLedger held = client.getClientCtx().getBookieClient()
                            .getListOfEntriesOfLedger(bookie, ledger).get(30, TimeUnit.SECONDS);
                    line.put("entries", held.getTotalNumOfAvailableEntries());
                    line.put("hex", HexFormat.of().formatHex(held.serializeStateOfEntriesOfLedger()));
                } catch (Exception e) {
                    line.putAll(Kit.failure(e));
                }
                Kit.json(line);
            }
        }
        Kit.json("ledger", ledger, "copies", good, "missing", bad);
        Kit.close(client);
        System.exit(bad == 0 ? 0 : 1);
    }

    private static Map<String, Object> line(int rc, ByteBuf buffer) {
        Map<String, Object> line = Kit.map("rc", rc, "result", Kit.error(rc));
        if (rc == 0) {
            // The first 32 bytes are ledger, entry, lac, cumulative length.
            ByteBuf copy = Unpooled.copiedBuffer(buffer);
            byte[] bytes = new byte[copy.readableBytes()];
            copy.readBytes(bytes);
            CRC32 crc = new CRC32();
            crc.update(bytes);
            line.put("size", bytes.length);
            line.put("lac", copy.getLong(16));
            line.put("length", copy.getLong(24));
            line.put("crc32", String.format("%08x", crc.getValue()));
        }
        return line;
    }
}
