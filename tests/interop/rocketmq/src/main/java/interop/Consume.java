package interop;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Consume --namesrv H:P --topic T --group G [--mode push|orderly|pull|lite|assign] [--broadcast] [--instances
 * 1] [--balanced]
 * [--filter "A || B"] [--sql EXPR] [--from first|last] [--later N] [--later-level L] [--max-reconsume N]
 * [--reply]
 * [--expect N] [--expect-later N] [--timeout 60] [--linger 0] [--batch 1] [--threads 4] [--pop]
 * [--quiet]
 * --later N answers "consume later" until a message was redelivered N times (-1: always). --reply answers
 * each message (request-reply).
 * --expect-later N waits for N such answers. --expect counts different messages accepted by the group
 * (broadcast: by every instance). --balanced also wants a queue at every instance. --pop: let the broker
 * share the queues (5.x).
 */
public final class Consume {
    private final Args args;
    private final Out out;
    private final int instances;
    private final boolean broadcast;
    private final List<Set<String>> seen = new ArrayList<>();
    private final List<DefaultMQPushConsumer> push = new ArrayList<>();
    private int deliveries;
    private volatile int postponed;
    private DefaultMQProducer replier;

    Consume(Args args, Out out) {
        this.args = args;
        this.out = out;
        instances = args.num("instances", 1);
        broadcast = args.has("broadcast");
        for (int i = 0; i < instances; i++) {
            seen.add(new HashSet<>());
        }
    }

    public static void main(String[] argv) {
        Host.once("Consume", argv);
    }

    boolean run() throws Exception {
        long deadline = System.nanoTime() + args.num("timeout", 60) * 1000000000L;
        long t0 = System.nanoTime();
        switch (args.get("mode", "push")) {
            case "push", "orderly" -> push(deadline);
            case "lite", "assign" -> lite(deadline, args.get("mode", "lite").equals("assign"));
            case "pull" -> pull(deadline);
            default -> throw new IllegalArgumentException("mode " + args.get("mode", ""));
        }
        boolean good = done();
        List<Object> each = new ArrayList<>();
        seen.forEach(s -> each.add(s.size()));
        out.event("summary", "ok", good, "accepted", accepted(), "deliveries", deliveries, "later",
                postponed, "byInstance", each,
            "expect", args.num("expect", 0), "ms", (System.nanoTime() - t0) / 1000000);
        return good;
    }

    private synchronized int accepted() {
        if (broadcast) {
            return seen.stream().mapToInt(Set::size).min().orElse(0);
        }
        Set<String> all = new HashSet<>();
        seen.forEach(all::addAll);
        return all.size();
    }

    private boolean done() {
        return accepted() >= args.num("expect", 0) && postponed >= args.num("expect-later", 0);
    }

    /** Returns true when the message is accepted, false for "later". */
    private synchronized boolean take(int instance, MessageExt m) {
        deliveries++;
        int later = args.num("later", 0);
        boolean accept = later >= 0 && m.getReconsumeTimes() >= later;
        if (!args.has("quiet")) {
            Clients.received(out, accept ? "message" : "later", instance, m);
        }
        if (!accept) {
            postponed++;
            return false;
        }
        seen.get(instance).add(Clients.uniq(m) == null ? m.getMsgId() : Clients.uniq(m) + m.getKeys());
        if (replier != null && m.getProperty("REPLY_TO_CLIENT") != null) {
            try {
                out.event("replied", "result", replier.send(MessageUtil.createReplyMessage(m, ("re:"
                        + Clients.body(m)).getBytes())).getSendStatus());
            } catch (Exception e) {
                out.event("error", "text", e.getMessage());
            }
        }
        return true;
    }

    private void push(long deadline) throws Exception {
        if (args.has("reply")) {
            replier = new DefaultMQProducer("interop_replier", Clients.signer(args));
            Clients.common(replier, args, "reply").start();
        }
        for (int i = 0; i < instances; i++) {
            DefaultMQPushConsumer c = Clients.consumer(args, "c" + i);
            if (args.has("pop")) {
                Compat.pop(c);
            }
            if (broadcast) {
                Compat.broadcast(c);
            }
            c.setConsumeFromWhere(args.get("from", "first").equals("last")
                    ? ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET : ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            c.setConsumeThreadMin(args.num("threads", 4));
            c.setConsumeThreadMax(args.num("threads", 4));
            c.setConsumeMessageBatchMaxSize(args.num("batch", 1));
            c.setMaxReconsumeTimes(args.num("max-reconsume", -1));
            if (args.get("sql", null) != null) {
                c.subscribe(args.need("topic"), MessageSelector.bySql(args.get("sql", "")));
            } else {
                c.subscribe(args.need("topic"), args.get("filter", "*"));
            }
            int n = i;
            if (args.get("mode", "push").equals("orderly")) {
                c.registerMessageListener((MessageListenerOrderly) (list, ctx) ->
                    takeAll(n, list) ? ConsumeOrderlyStatus.SUCCESS
                            : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
            } else {
                c.registerMessageListener((MessageListenerConcurrently) (list, ctx) -> {
                    ctx.setDelayLevelWhenNextConsume(args.num("later-level", 0));
                    return takeAll(n, list) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                            : ConsumeConcurrentlyStatus.RECONSUME_LATER;
                });
            }
            c.start();
            push.add(c);
        }
        out.event("ready", "instances", instances);
        while (System.nanoTime() < deadline && !(done() && (!args.has("balanced") || balanced()))) {
            Thread.sleep(20);
        }
        Thread.sleep(args.num("linger", 0));
        for (int i = 0; i < instances; i++) {
            out.event("queues", "instance", i, "clientId", push.get(i).buildMQClientId(), "queues",
                    queues(i));
        }
        boolean balanced = balanced();
        push.forEach(DefaultMQPushConsumer::shutdown);
        if (replier != null) {
            replier.shutdown();
        }
        if (args.has("balanced") && !balanced) {
            throw new IllegalStateException("an instance has no queue");
        }
    }

    private boolean takeAll(int instance, List<MessageExt> list) {
        boolean all = true;
        for (MessageExt m : list) {
            all &= take(instance, m);
        }
        return all;
    }

    private Collection<String> queues(int i) {
        Set<String> names = new TreeSet<>();
        var rebalance = push.get(i).getDefaultMQPushConsumerImpl().getRebalanceImpl();
        for (MessageQueue q : rebalance.getProcessQueueTable().keySet()) {
            if (q.getTopic().equals(args.need("topic"))) {
                names.add(q.getBrokerName() + ":" + q.getQueueId());
            }
        }
        return names;
    }

    private boolean balanced() {
        Set<String> all = new HashSet<>();
        int sum = 0;
        for (int i = 0; i < instances; i++) {
            Collection<String> mine = queues(i);
            if (mine.isEmpty()) {
                return false;
            }
            sum += mine.size();
            all.addAll(mine);
        }
        return broadcast || sum == all.size();
    }

    private void lite(long deadline, boolean assign) throws Exception {
        DefaultLitePullConsumer c = new DefaultLitePullConsumer(args.need("group"), Clients.signer(args));
        Clients.common(c, args, "lite");
        c.setAutoCommit(false);
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (!assign) {
            c.subscribe(args.need("topic"), args.get("filter", "*"));
        }
        c.start();
        if (assign) {
            Collection<MessageQueue> all = c.fetchMessageQueues(args.need("topic"));
            c.assign(all);
            for (MessageQueue q : all) {
                c.seekToBegin(q);
            }
        }
        out.event("ready", "instances", 1);
        while (System.nanoTime() < deadline && !done()) {
            for (MessageExt m : c.poll(500)) {
                take(0, m);
            }
            c.commitSync();
        }
        Thread.sleep(args.num("linger", 0));
        c.shutdown();
    }

    @SuppressWarnings("deprecation")
    private void pull(long deadline) throws Exception {
        DefaultMQPullConsumer c = new DefaultMQPullConsumer(args.need("group"), Clients.signer(args));
        Clients.common(c, args, "pull");
        c.start();
        Set<MessageQueue> all = c.fetchSubscribeMessageQueues(args.need("topic"));
        Map<MessageQueue, Long> next = new ConcurrentHashMap<>();
        Map<String, Object> statuses = new HashMap<>();
        out.event("ready", "instances", 1);
        while (System.nanoTime() < deadline && !done()) {
            for (MessageQueue q : all) {
                long from = next.containsKey(q) ? next.get(q) : Math.max(0, c.fetchConsumeOffset(q, true));
                PullResult r = c.pull(q, args.get("filter", "*"), from, 32);
                statuses.merge(r.getPullStatus().name(), 1, (x, y) -> (Integer) x + (Integer) y);
                if (r.getPullStatus() == PullStatus.FOUND) {
                    r.getMsgFoundList().forEach(m -> take(0, m));
                }
                next.put(q, r.getNextBeginOffset());
                c.updateConsumeOffset(q, r.getNextBeginOffset());
            }
        }
        out.event("pulls", "statuses", statuses);
        c.shutdown();
    }
}
