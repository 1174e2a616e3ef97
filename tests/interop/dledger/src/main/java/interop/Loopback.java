package interop;

import io.netty.bootstrap.ServerBootstrap;
import io.openmessaging.storage.dledger.DLedgerServer;
import java.lang.reflect.Field;
import java.net.InetSocketAddress;
import java.net.SocketAddress;

/** The remoting server of these versions binds every interface; swap its bootstrap for one that binds
 * 127.0.0.1 only. */
final class Loopback {
    private Loopback() {
    }

    static void confine(DLedgerServer server) throws ReflectiveOperationException {
        Object remoting = server.getRemotingServer();
        Field f = remoting.getClass().getDeclaredField("serverBootstrap");
        f.setAccessible(true);
        f.set(remoting, new ServerBootstrap() {
            @Override
            public ServerBootstrap localAddress(SocketAddress wanted) {
                return super.localAddress(new InetSocketAddress("127.0.0.1", ((InetSocketAddress) wanted)
                    .getPort()));
            }
        });
    }
}
