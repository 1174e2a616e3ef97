package interop;

import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestFutureHolder;
import org.apache.rocketmq.client.producer.RequestResponseFuture;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;

/**
 * Produce --namesrv H:P --topic T [--mode sync|async|oneway|batch|orderly|request] [--count 10] [--size 0,…]
 * [--tags A,B] [--prefix m]
 * [--batch 32] [--delay-level N] [--property k=v-%i] [--retries 2] [--send-timeout 60000] [--compress-over
 * 4096] [--codec ZLIB|LZ4|ZSTD] [--expect N] [--timeout 30] [--linger 0] [--trace] [--quiet] [--poll 30000]
 * Fails unless --expect (default --count) messages were accepted with SEND_OK (one-way: handed over without
 * an exception).
 */
public final class Produce {
    private final Args args;
    private final Out out;
    private final AtomicInteger ok = new AtomicInteger();
    private final AtomicInteger bad = new AtomicInteger();

    Produce(Args args, Out out) {
        this.args = args;
        this.out = out;
    }

    public static void main(String[] argv) {
        Host.once("Produce", argv);
    }

    boolean run() throws Exception {
        int count = args.num("count", 10);
        int expect = args.num("expect", count);
        DefaultMQProducer p = Clients.producer(args);
        p.setCompressMsgBodyOverHowmuch(args.num("compress-over", 4096));
        p.start();
        long t0 = System.nanoTime();
        try {
            switch (args.get("mode", "sync")) {
                case "async" -> async(p, count);
                case "batch" -> batch(p, count);
                default -> oneByOne(p, count, args.get("mode", "sync"));
            }
            Thread.sleep(args.num("linger", 0));
        } finally {
            p.shutdown();
        }
        boolean good = ok.get() >= expect;
        out.event("summary", "ok", good, "sent", ok.get(), "failed", bad.get(), "expect", expect, "ms",
                (System.nanoTime() - t0) / 1000000);
        return good;
    }

    private void oneByOne(DefaultMQProducer p, int count, String mode) {
        for (int i = 0; i < count; i++) {
            Message m = Clients.message(args, i);
            try {
                switch (mode) {
                    case "sync" -> sent(i, p.send(m));
                    case "orderly" -> sent(i, p.send(m, (queues, msg, key)
                            -> queues.get((Integer) key % queues.size()), i));
                    case "oneway" -> {
                        p.sendOneway(m);
                        ok.incrementAndGet();
                    }
                    case "request" -> request(p, i, m);
                    default -> throw new IllegalArgumentException("mode " + mode);
                }
            } catch (Exception e) {
                failed(i, e);
            }
        }
    }

    /**
     * Sends a request by hand: request() of the 5.3.3 client, with and without callback, gives up when the
     * send itself is answered.
     */
    private void request(DefaultMQProducer p, int i, Message m) throws Exception {
        long timeout = args.num("timeout", 30) * 1000L;
        // The broker can push the reply only to a client it has a heartbeat of.
        MQClientInstance net = p.getDefaultMQProducerImpl().getmQClientFactory();
        net.updateTopicRouteInfoFromNameServer(m.getTopic());
        net.sendHeartbeatToAllBrokerWithLock();
        String id = UUID.randomUUID().toString();
        MessageAccessor.putProperty(m, MessageConst.PROPERTY_CORRELATION_ID, id);
        MessageAccessor.putProperty(m, MessageConst.PROPERTY_MESSAGE_REPLY_TO_CLIENT, p.buildMQClientId());
        MessageAccessor.putProperty(m, MessageConst.PROPERTY_MESSAGE_TTL, Long.toString(timeout));
        RequestResponseFuture future = new RequestResponseFuture(id, timeout, null);
        RequestFutureHolder.getInstance().getRequestFutureTable().put(id, future);
        p.send(m);
        Message reply = future.waitResponseMessage(timeout);
        if (reply == null) {
            throw new IllegalStateException("no reply");
        }
        out.event("reply", "i", i, "body", Clients.body(reply), "properties", reply.getProperties());
        ok.incrementAndGet();
    }

    private void async(DefaultMQProducer p, int count) throws Exception {
        CountDownLatch left = new CountDownLatch(count);
        for (int i = 0; i < count; i++) {
            int n = i;
            p.send(Clients.message(args, i), new SendCallback() {
                @Override
                public void onSuccess(SendResult r) {
                    sent(n, r);
                    left.countDown();
                }

                @Override
                public void onException(Throwable e) {
                    failed(n, e);
                    left.countDown();
                }
            });
        }
        left.await(args.num("timeout", 30), TimeUnit.SECONDS);
    }

    private void batch(DefaultMQProducer p, int count) {
        int size = args.num("batch", 32);
        for (int i = 0; i < count; i += size) {
            List<Message> list = new ArrayList<>();
            for (int j = i; j < Math.min(i + size, count); j++) {
                list.add(Clients.message(args, j));
            }
            try {
                sent(i, p.send(list));
                ok.addAndGet(list.size() - 1);
            } catch (Exception e) {
                failed(i, e);
            }
        }
    }

    private void sent(int i, SendResult r) {
        (r.getSendStatus() == SendStatus.SEND_OK ? ok : bad).incrementAndGet();
        if (!args.has("quiet")) {
            out.event("sent", "i", i, "status", r.getSendStatus(), "uniq", r.getMsgId(), "offsetMsgId",
                    r.getOffsetMsgId(),
                "broker", r.getMessageQueue().getBrokerName(), "queue", r.getMessageQueue().getQueueId(),
                        "offset", r.getQueueOffset());
        }
    }

    private void failed(int i, Throwable e) {
        bad.incrementAndGet();
        int code = e instanceof MQClientException c ? c.getResponseCode() : -1;
        out.event("error", "i", i, "type", e.getClass().getSimpleName(), "code", code, "text",
                String.valueOf(e.getMessage()).split("\n")[0]);
    }
}
