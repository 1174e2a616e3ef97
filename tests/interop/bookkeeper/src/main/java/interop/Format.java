package interop;

import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.ZooDefs;

/**
 * Creates the metadata of a new cluster: {@code --zk H:P [--root /ledgers] [--scheme zk+hierarchical]
 * [--force]
 * [--skip-ids N]}; the last makes the id generator start at ledger id N.
 */
public final class Format {
    public static void main(String[] argv) throws Exception {
        Args args = new Args(argv);
        ServerConfiguration conf = Kit.serverConf(args);
        boolean done = args.has("force")
                ? BookKeeperAdmin.format(conf, false, true)
                : BookKeeperAdmin.initNewCluster(conf);
        if (args.has("skip-ids")) {
            String idgen = args.get("root", "/ledgers") + "/idgen";
            try (Zk zk = new Zk(args)) {
                zk.client.create(idgen, new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
                for (int i = 0; i < args.num("skip-ids", 0); i++) {
                    zk.client.delete(zk.client.create(idgen + "/ID-", new byte[0],
                            ZooDefs.Ids.OPEN_ACL_UNSAFE,
                            CreateMode.EPHEMERAL_SEQUENTIAL), -1);
                }
            }
        }
        Kit.json("formatted", done);
        System.exit(done ? 0 : 1);
    }
}
