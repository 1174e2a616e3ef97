package interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** DLedger requests as plain JSON over the Java remoting client, so that answers are shown exactly as they
 * came. */
final class Rpc implements AutoCloseable {
    static final int METADATA = 50000;
    static final int APPEND = 50001;
    static final int GET = 50002;
    static final int HEART_BEAT = 51002;
    static final int PULL = 51003;
    static final int TRANSFER = 51005;

    final String group;
    final Map<String, String> peers = new LinkedHashMap<>();
    private final NettyRemotingClient client;

    Rpc(String group, String peerList) {
        this.group = group;
        for (String p : peerList.split(";")) {
            int dash = p.indexOf('-');
            peers.put(p.substring(0, dash), p.substring(dash + 1));
        }
        NettyClientConfig config = new NettyClientConfig();
        config.setConnectTimeoutMillis(1000);
        client = new NettyRemotingClient(config);
        client.start();
    }

    JSONObject request(String remoteId) {
        JSONObject r = new JSONObject(true);
        r.put("group", group);
        r.put("remoteId", remoteId);
        r.put("code", 200);
        r.put("term", -1);
        return r;
    }

    /** Completes with the JSON body; a remoting-level failure becomes {"remotingCode":c,"remark":r}; no
     * answer completes exceptionally. */
    CompletableFuture<JSONObject> send(int code, JSONObject request, long timeoutMs) {
        CompletableFuture<JSONObject> result = new CompletableFuture<>();
        RemotingCommand command = RemotingCommand.createRequestCommand(code, null);
        command.setBody(request.toJSONString().getBytes(StandardCharsets.UTF_8));
        try {
            client.invokeAsync(peers.get(request.getString("remoteId")), command, timeoutMs, f -> {
                RemotingCommand response = f.getResponseCommand();
                if (response == null) {
                    result.completeExceptionally(new TimeoutException("no answer"));
                } else if (response.getBody() == null) {
                    JSONObject o = new JSONObject(true);
                    o.put("remotingCode", response.getCode());
                    o.put("remark", response.getRemark());
                    result.complete(o);
                } else {
                    result.complete(JSON.parseObject(new String(response.getBody(), StandardCharsets.UTF_8)));
                }
            });
        } catch (Exception e) {
            result.completeExceptionally(e);
        }
        return result;
    }

    JSONObject call(int code, JSONObject request, long timeoutMs) throws Exception {
        try {
            return send(code, request, timeoutMs).get(timeoutMs + 500, TimeUnit.MILLISECONDS);
        } catch (ExecutionException e) {
            throw (Exception) e.getCause();
        }
    }

    /** The leader as named by any node that answers and is named as leader by itself; null when none. */
    String leader(long timeoutMs) {
        Map<String, CompletableFuture<JSONObject>> asked = new LinkedHashMap<>();
        for (String id : peers.keySet()) {
            asked.put(id, send(METADATA, request(id), timeoutMs));
        }
        String found = null;
        for (Map.Entry<String, CompletableFuture<JSONObject>> a : asked.entrySet()) {
            try {
                String leader = a.getValue().get(timeoutMs + 200, TimeUnit.MILLISECONDS)
                    .getString("leaderId");
                if (a.getKey().equals(leader)) {
                    found = leader;
                }
            } catch (Exception ignored) {
                // this node does not answer
            }
        }
        return found;
    }

    String waitLeader(long waitMs) throws InterruptedException {
        long end = System.currentTimeMillis() + waitMs;
        for (String l; System.currentTimeMillis() < end; Thread.sleep(20)) {
            if ((l = leader(500)) != null) {
                return l;
            }
        }
        throw new IllegalStateException("no leader within " + waitMs + " ms");
    }

    /** A heartbeat with a term below every real one is refused with 403 and the node's own term; it
     * changes nothing. */
    Long term(String id) {
        String other = peers.keySet().stream().filter(p -> !p.equals(id)).findFirst().orElse(null);
        if (other == null) {
            return null;
        }
        JSONObject r = request(id);
        r.put("localId", other);
        r.put("leaderId", other);
        r.put("term", -2);
        try {
            JSONObject a = call(HEART_BEAT, r, 1000);
            return a.getIntValue("code") == 403 ? a.getLong("term") : null;
        } catch (Exception e) {
            return null;
        }
    }

    @Override
    public void close() {
        client.shutdown();
    }
}
