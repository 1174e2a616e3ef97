package interop;

import org.apache.bookkeeper.common.component.LifecycleComponentStack;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.replication.AutoRecoveryMain;
import org.apache.bookkeeper.server.conf.BookieConfiguration;

/**
 * Auditor candidate and replication worker in one process: {@code --zk H:P [--port P] [--id NAME] [--set
 * key=value]…}.
 * The port only forms the identity (127.0.0.1:port) used in votes and locks; nothing listens on it.
 */
public final class AutoRecovery {
    public static void main(String[] argv) throws Exception {
        Args args = new Args(argv);
        ServerConfiguration conf = Kit.serverConf(args);
        conf.setBookiePort(args.num("port", 3999));
        if (args.has("id")) {
            conf.setBookieId(args.need("id"));
        }
        LifecycleComponentStack stack =
                AutoRecoveryMain.buildAutoRecoveryServer(new BookieConfiguration(conf));
        stack.start();
        Kit.onTerm(() -> {
            stack.stop();
            stack.close();
        });
        Kit.ready(conf.getBookiePort());
        Thread.currentThread().join();
    }
}
