package interop;

import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.net.BookieId;

/** What a Java client sees of the bookies: registration and GET_BOOKIE_INFO. {@code --zk H:P}. */
public final class Info {
    public static void main(String[] argv) throws Exception {
        Args args = new Args(argv);
        BookKeeper client = Kit.client(args);
        BookKeeperAdmin admin = new BookKeeperAdmin(client);
        Kit.json("all", admin.getAllBookies().toString(), "writable", admin.getAvailableBookies().toString(),
                "readOnly", admin.getReadOnlyBookies().toString());
        for (BookieId id : admin.getAvailableBookies()) {
            Kit.json("bookie", id.toString(), "resolved",
                    admin.getBookieAddressResolver().resolve(id).toString(),
                    "serviceInfo", admin.getBookieServiceInfo(id).toString());
        }
        client.getBookieInfo().forEach((id, info) -> {
            try {
                Kit.json("bookie", id.toString(), "free", info.getFreeDiskSpace(), "total",
                        info.getTotalDiskSpace());
            } catch (Exception e) {
                throw new RuntimeException(e);
            }
        });
        System.exit(0);
    }
}
