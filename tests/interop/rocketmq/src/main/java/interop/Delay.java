package interop;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Delay --namesrv H:P --topic T --group G [--level 2 | --ms 3000] [--count 3] [--want MS] [--tolerance 2000]
 * [--timeout 60]
 * Sends one plain message, waits for it, then sends delayed messages and measures when they arrive. --level:
 * 1..18 (1s 5s 10s ...). --ms: 5.x timer message. Fails when a message is
 * missing, early by more than 50 ms, or later than --tolerance.
 */
public final class Delay {
    public static void main(String[] argv) {
        Host.once("Delay", argv);
    }

    static boolean run(Args a, Out out) throws Exception {
        int count = a.num("count", 3);
        int ms = a.num("ms", 0);
        int level = a.num("level", 2);
        long want = a.num("want", ms > 0 ? ms : new int[] {0, 1000, 5000, 10000, 30000}[Math.min(level, 4)]);
        Map<String, Long> sentAt = new ConcurrentHashMap<>();
        CountDownLatch left = new CountDownLatch(count);
        CountDownLatch warm = new CountDownLatch(1);
        AtomicInteger wrong = new AtomicInteger();

        DefaultMQProducer p = Clients.producer(a);
        p.start();
        DefaultMQPushConsumer c = Clients.consumer(a, "c");
        Compat.fromFirst(c);
        c.subscribe(a.need("topic"), "*");
        c.registerMessageListener((MessageListenerConcurrently) (list, ctx) -> {
            for (MessageExt m : list) {
                warm.countDown();
                Long t = m.getKeys() == null ? null : sentAt.remove(m.getKeys());
                if (t != null) {
                    long took = System.currentTimeMillis() - t;
                    if (took < want - 50 || took > want + a.num("tolerance", 2000)) {
                        wrong.incrementAndGet();
                    }
                    out.event("message", "keys", m.getKeys(), "waited", took, "want", want, "properties",
                            m.getProperties());
                    left.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        p.send(new Message(a.need("topic"), "warm-up".getBytes()));
        c.start();
        warm.await(40, TimeUnit.SECONDS);
        String run = Long.toString(System.nanoTime(), 36);
        for (int i = 0; i < count; i++) {
            Message m = Clients.message(a, i);
            m.setKeys(run + "-" + i);
            if (ms > 0) {
                Compat.delayMs(m, ms);
            } else {
                m.setDelayTimeLevel(level);
            }
            sentAt.put(m.getKeys(), System.currentTimeMillis());
            out.event("sent", "keys", m.getKeys(), "status", p.send(m).getSendStatus());
        }
        boolean all = left.await(a.num("timeout", 60), TimeUnit.SECONDS);
        c.shutdown();
        p.shutdown();
        boolean ok = all && wrong.get() == 0;
        out.event("summary", "ok", ok, "missing", left.getCount(), "wrongTime", wrong.get());
        return ok;
    }
}
