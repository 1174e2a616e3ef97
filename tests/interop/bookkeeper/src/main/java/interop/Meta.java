package interop;

import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.meta.LedgerMetadataSerDe;
import org.apache.zookeeper.data.Stat;

/**
 * Ledger metadata as JSON, raw bytes included: {@code --zk H:P [--root /ledgers] --ledger L}; or
 * {@code --hex BYTES [--ledger L]} to decode bytes without a server.
 */
public final class Meta {
    public static void main(String[] argv) throws Exception {
        Args args = new Args(argv);
        long ledger = args.lng("ledger", 0);
        try {
            if (args.has("hex")) {
                Kit.json(decode(ledger, HexFormat.of().parseHex(args.need("hex"))));
            } else {
                String path = path(args.get("root", "/ledgers"), ledger);
                try (Zk zk = new Zk(args)) {
                    Stat stat = new Stat();
                    byte[] raw = zk.client.getData(path, false, stat);
                    Map<String, Object> line = Kit.map("path", path, "znodeVersion", stat.getVersion(),
                            "hex", HexFormat.of().formatHex(raw));
                    line.putAll(decode(ledger, raw));
                    Kit.json(line);
                }
            }
        } catch (Exception e) {
            Kit.fail(e);
        }
        System.exit(0);
    }

    /** Path in the default (hierarchical) layout. */
    static String path(String root, long id) {
        if (id < Integer.MAX_VALUE) {
            String s = String.format("%010d", id);
            return root + "/" + s.substring(0, 2) + "/" + s.substring(2, 6) + "/L" + s.substring(6);
        }
        String s = String.format("%019d", id);
        return root + "/" + s.substring(0, 3) + "/" + s.substring(3, 7) + "/" + s.substring(7, 11) + "/"
                + s.substring(11, 15) + "/L" + s.substring(15);
    }

    static Map<String, Object> decode(long ledger, byte[] raw) throws Exception {
        LedgerMetadata m = new LedgerMetadataSerDe().parseConfig(raw, ledger, Optional.empty());
        Map<String, Object> ensembles = new LinkedHashMap<>();
        m.getAllEnsembles().forEach((first, bookies) -> ensembles.put(String.valueOf(first),
                bookies.stream().map(Object::toString).toList()));
        Map<String, Object> custom = new LinkedHashMap<>();
        m.getCustomMetadata().forEach((k, v) -> custom.put(k, new String(v, StandardCharsets.UTF_8)));
        return Kit.map("ledger", ledger, "formatVersion", m.getMetadataFormatVersion(), "state",
                m.getState().name(),
                "e", m.getEnsembleSize(), "qw", m.getWriteQuorumSize(), "qa", m.getAckQuorumSize(),
                "digest", m.hasPassword() ? m.getDigestType().name() : null,
                "password", m.hasPassword() ? new String(m.getPassword(), StandardCharsets.UTF_8) : null,
                "lastEntryId", m.getLastEntryId(), "length", m.getLength(), "ctime", m.getCtime(),
                "cToken", m.getCToken(), "ensembles", ensembles, "custom", custom);
    }
}
