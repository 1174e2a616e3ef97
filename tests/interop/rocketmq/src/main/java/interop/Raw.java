package interop;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * Raw --addr H:P --code N [--ext key=value ...] [--body TEXT] [--oneway] [--timeout 5000] [--expect-code 0]
 * [--then ... next request]
 * Sends hand-made requests with the real remoting client over one connection and prints what comes back.
 * Requests are separated by "--then".
 */
public final class Raw {
    public static void main(String[] argv) throws Exception {
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        NettyRemotingClient client = new NettyRemotingClient(new NettyClientConfig());
        client.start();
        boolean ok = true;
        String addr = null;
        for (String part : String.join("\u0000", argv).split("\u0000?--then\u0000?")) {
            Args a = new Args(part.split("\u0000"));
            addr = a.get("addr", addr);
            RemotingCommand request = RemotingCommand.createRequestCommand(a.num("code", 0), null);
            HashMap<String, String> ext = new HashMap<>();
            a.pairs("ext").forEach((k, v) -> ext.put((String) k, (String) v));
            if (!ext.isEmpty()) {
                request.setExtFields(ext);
            }
            if (a.get("body", null) != null) {
                request.setBody(a.get("body", "").getBytes(StandardCharsets.UTF_8));
            }
            if (a.has("oneway")) {
                client.invokeOneway(addr, request, a.num("timeout", 5000));
                continue;
            }
            RemotingCommand r = client.invokeSync(addr, request, a.num("timeout", 5000));
            ok &= r.getCode() == a.num("expect-code", 0);
            Out.event("response", "request", a.num("code", 0), "code", r.getCode(), "remark", r.getRemark(),
                    "ext", r.getExtFields(),
                "bodyLength", r.getBody() == null ? 0 : r.getBody().length,
                "body", r.getBody() == null ? null : new String(r.getBody(), StandardCharsets.ISO_8859_1));
        }
        client.shutdown();
        Out.event("summary", "ok", ok);
        System.exit(ok ? 0 : 1);
    }
}
