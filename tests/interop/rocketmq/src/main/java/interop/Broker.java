package interop;

import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.remoting.exception.RemotingException;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Broker --port P --namesrv H:P --store DIR [--role ASYNC_MASTER] [--broker-id 0] [--name broker-a]
 * [--cluster DefaultCluster]
 * [--bind 127.0.0.1] [--advertise 127.0.0.1] [--ha-port P+1] [--ha-master H:P] [--small] [--set key=value
 * ...]
 * --ha-master: a slave takes its data from this HA address instead of the one the name server tells. --small:
 * 4 MiB commit-log segments, 6000-entry consume-queue files, small index. --set reaches broker, store, server
 * and client configuration.
 */
public final class Broker {
    public static void main(String[] argv) {
        try {
            start(argv);
        } catch (Throwable t) {
            t.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static final int PATIENCE_MS = 60_000;

    private static void start(String[] argv) throws Exception {
        Args a = new Args(argv);
        Out out = Out.ofProcess();
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        BrokerConfig broker = new BrokerConfig();
        NettyServerConfig server = new NettyServerConfig();
        NettyClientConfig client = new NettyClientConfig();
        MessageStoreConfig store = new MessageStoreConfig();

        String dir = a.need("store");
        String advertise = a.get("advertise", "127.0.0.1");
        broker.setRocketmqHome(dir);
        broker.setNamesrvAddr(a.get("namesrv", null));
        broker.setBrokerIP1(advertise);
        broker.setBrokerIP2(advertise);
        server.setListenPort(a.num("port", 10911));
        Compat.bind(server, a.get("bind", "127.0.0.1"));
        store.setStorePathRootDir(dir);
        store.setStorePathCommitLog(dir + "/commitlog");
        BrokerRole role = BrokerRole.valueOf(a.get("role", "ASYNC_MASTER"));
        store.setBrokerRole(role);
        store.setHaListenPort(a.num("ha-port", server.getListenPort() + 1));
        if (role == BrokerRole.SLAVE) {
            store.setAccessMessageInMemoryMaxRatio(store.getAccessMessageInMemoryMaxRatio() - 10);
        }
        String haMaster = a.get("ha-master", null);
        if (haMaster != null) {
            store.setHaMasterAddress(haMaster);
        }
        if (a.has("small")) {
            store.setMappedFileSizeCommitLog(4 << 20);
            store.setMappedFileSizeConsumeQueue(6000 * 20);
            store.setMaxHashSlotNum(1000);
            store.setMaxIndexNum(4000);
            // a busy machine must not fail what is not about time
            broker.setWaitTimeMillsInSendQueue(PATIENCE_MS);
            store.setOsPageCacheBusyTimeOutMills(PATIENCE_MS);
        }
        Compat.identity(broker, a.get("name", "broker-a"), a.get("cluster", "DefaultCluster"),
                a.num("broker-id", role == BrokerRole.SLAVE ? 1 : 0));
        Properties more = a.pairs("set");
        for (Object config : new Object[] {broker, server, client, store}) {
            MixAll.properties2Object(more, config);
        }

        BrokerController controller = Compat.broker(broker, server, client, store);
        if (!controller.initialize()) {
            controller.shutdown();
            throw new IllegalStateException("broker did not initialise");
        }
        controller.start();
        if (haMaster != null) {
            // 5.3.3 applies haMasterAddress before its HA client exists, so the setting alone leaves the
            // slave without a master.
            controller.getMessageStore().updateHaMasterAddress(haMaster);
        }
        Runtime.getRuntime().addShutdownHook(new Thread(controller::shutdown));
        if (broker.getNamesrvAddr() != null) {
            awaitRegistration(controller, broker.getNamesrvAddr().split(";")[0]);
        }
        out.text("READY " + server.getListenPort() + " " + store.getHaListenPort());
    }

    /**
     * READY means that the name server knows this broker; the first registration can time out on a slow
     * machine.
     */
    private static void awaitRegistration(BrokerController controller, String namesrv) throws Exception {
        NettyRemotingClient client = new NettyRemotingClient(new NettyClientConfig());
        client.start();
        for (int i = 0; i < 60; i++) {
            try {
                // 106 = GET_BROKER_CLUSTER_INFO
                RemotingCommand asked = RemotingCommand.createRequestCommand(106, null);
                byte[] body = client.invokeSync(namesrv, asked, 3000).getBody();
                String known = body == null ? "" : new String(body, StandardCharsets.UTF_8);
                if (known.contains(controller.getBrokerAddr() + '"')) {
                    break;
                }
                controller.registerBrokerAll(true, false, true);
            } catch (RemotingException e) {
                System.err.println("name server does not answer yet: " + e.getMessage());
            }
            Thread.sleep(500);
        }
        client.shutdown();
    }
}
