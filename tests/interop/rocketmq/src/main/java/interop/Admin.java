package interop;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Admin [--access-key K --secret-key S] ARGS...: the real mqadmin command line, for example
 * "Admin clusterList -n H:P". What it says, to stdout or stderr, is printed unchanged.
 */
public final class Admin {
    public static void main(String[] argv) {
        Host.once("Admin", argv);
    }

    static synchronized boolean run(String[] argv, Out out) {
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        PrintStream stdout = System.out;
        PrintStream stderr = System.err;
        try (PrintStream kept = new PrintStream(said, true, StandardCharsets.UTF_8)) {
            System.setOut(kept);
            System.setErr(kept);
            boolean signs = argv[0].equals("--access-key");
            String[] words = Arrays.copyOfRange(argv, signs ? 4 : 0, argv.length);
            MQAdminStartup.main0(words, signs ? Clients.signer(new Args(Arrays.copyOf(argv, 4))) : null);
        } finally {
            System.setOut(stdout);
            System.setErr(stderr);
        }
        out.text(said.toString(StandardCharsets.UTF_8));
        return true;
    }
}
