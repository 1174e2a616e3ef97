package interop;

import java.io.File;
import org.apache.bookkeeper.common.component.LifecycleComponentStack;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.server.EmbeddedServer;
import org.apache.bookkeeper.server.conf.BookieConfiguration;

/**
 * One bookie: {@code --port P --zk H:P --journal DIR[,DIR] --ledgers DIR[,DIR] [--index DIR] [--id NAME]
 * [--storage sorted|interleaved|db] [--set key=value]…}. It always speaks V2 and V3.
 */
public final class Bookie {
    public static void main(String[] argv) throws Exception {
        Args args = new Args(argv);
        ServerConfiguration conf = Kit.serverConf(args);
        conf.setBookiePort(args.num("port", 3181));
        if (args.has("id")) {
            conf.setBookieId(args.need("id"));
        }
        conf.setJournalDirsName(args.need("journal").split(","));
        conf.setLedgerDirNames(args.need("ledgers").split(","));
        if (args.has("index")) {
            conf.setIndexDirName(args.need("index").split(","));
        }
        switch (args.get("storage", "sorted")) {
            case "sorted" -> { }
            case "interleaved" -> conf.setSortedLedgerStorageEnabled(false);
            case "db" ->
                conf.setLedgerStorageClass("org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage");
            default -> throw new IllegalArgumentException("--storage");
        }
        if (conf.getLedgerStorageClass().endsWith("SortedLedgerStorage")
                && !conf.getSortedLedgerStorageEnabled()) {
            conf.setLedgerStorageClass("org.apache.bookkeeper.bookie.InterleavedLedgerStorage");
        }
        for (File dir : conf.getJournalDirs()) {
            dir.mkdirs();
        }
        for (File dir : conf.getLedgerDirs()) {
            dir.mkdirs();
        }
        EmbeddedServer server;
        try {
            server = EmbeddedServer.builder(new BookieConfiguration(conf)).build();
            server.getLifecycleComponentStack().start();
        } catch (Throwable e) {
            System.out.println("REFUSED " + Kit.failure(e));
            System.out.flush();
            Runtime.getRuntime().halt(2);
            return;
        }
        LifecycleComponentStack stack = server.getLifecycleComponentStack();
        Kit.onTerm(() -> {
            stack.stop();
            stack.close();
        });
        Kit.ready(conf.getBookiePort());
        while (server.getBookieService().getServer().isRunning()) {
            Thread.sleep(200);
        }
        System.exit(3);   // the bookie gave up by itself (for instance: registration lost)
    }
}
