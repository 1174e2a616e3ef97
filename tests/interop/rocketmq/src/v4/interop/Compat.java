package interop;

import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** What differs between 4.9.x and 5.x. This is the 4.9.x side. */
final class Compat {
    private Compat() {
    }

    /** 4.9.x always listens on all addresses. */
    static void bind(NettyServerConfig c, String host) {
    }

    static void identity(BrokerConfig b, String name, String cluster, long id) {
        b.setBrokerName(name);
        b.setBrokerClusterName(cluster);
        b.setBrokerId(id);
    }

    static BrokerController broker(BrokerConfig b, NettyServerConfig s, NettyClientConfig c,
            MessageStoreConfig m) {
        return new BrokerController(b, s, c, m);
    }

    static void broadcast(DefaultMQPushConsumer c) {
        c.setMessageModel(MessageModel.BROADCASTING);
    }

    static void fromFirst(DefaultMQPushConsumer c) {
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    }

    static void delayMs(Message m, long ms) {
        throw new UnsupportedOperationException("timer messages need 5.x");
    }

    /** The broker shares the queues, by pulls or pops as it is told. */
    static void pop(DefaultMQPushConsumer c) {
        throw new UnsupportedOperationException("pops need 5.x");
    }
}
