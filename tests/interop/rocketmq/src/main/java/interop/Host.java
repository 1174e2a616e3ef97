package interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * Host [--port 0]: the client programs in one process, one after another or side by side, without a start of
 * Java for each. Prints READY and its port. A connection sends one line, the name of a program and its
 * arguments with tabs between them; back comes what the program prints, and last {"event":"exit","status":N}.
 */
public final class Host {
    interface Program {
        boolean run(String[] argv, Out out) throws Exception;
    }

    private static final Map<String, Program> PROGRAMS = Map.of(
            "Admin", Admin::run,
            "Consume", (argv, out) -> new Consume(new Args(argv), out).run(),
            "Delay", (argv, out) -> Delay.run(new Args(argv), out),
            "Produce", (argv, out) -> new Produce(new Args(argv), out).run(),
            "Query", (argv, out) -> Query.run(new Args(argv), out),
            "Transaction", (argv, out) -> Transaction.run(new Args(argv), out));

    public static void main(String[] argv) throws IOException {
        Out own = Out.ofProcess();
        InetAddress loopback = InetAddress.getByName("127.0.0.1");
        try (ServerSocket server = new ServerSocket(new Args(argv).num("port", 0), 64, loopback)) {
            own.text("READY " + server.getLocalPort());
            while (true) {
                Socket peer = server.accept();
                new Thread(() -> serve(peer)).start();
            }
        }
    }

    /** One program as a process of its own. */
    static void once(String program, String[] argv) {
        System.exit(run(PROGRAMS.get(program), argv, Out.ofProcess()));
    }

    private static void serve(Socket peer) {
        try (peer) {
            BufferedReader lines = new BufferedReader(new InputStreamReader(peer.getInputStream(),
                    StandardCharsets.UTF_8));
            String[] words = lines.readLine().split("\t", -1);
            Out out = new Out(peer.getOutputStream());
            String[] rest = java.util.Arrays.copyOfRange(words, 1, words.length);
            out.event("exit", "status", run(PROGRAMS.get(words[0]), rest, out));
        } catch (IOException e) {
            System.err.println("a connection broke: " + e);
        }
    }

    private static int run(Program program, String[] argv, Out out) {
        try {
            return program.run(argv, out) ? 0 : 1;
        } catch (Throwable e) {
            e.printStackTrace();
            out.event("error", "type", e.getClass().getSimpleName(), "text", String.valueOf(e.getMessage()));
            return 1;
        }
    }
}
