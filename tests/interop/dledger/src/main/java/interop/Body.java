package interop;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;

/**
 * Reproducible bodies. Entry i of seed s:
 *   size  = min + (first 4 bytes of sha256("s/i") as unsigned big-endian) mod (max - min + 1)
 *   bytes = sha256("s/i/0") | sha256("s/i/1") | ... cut to size
 */
final class Body {
    private Body() {
    }

    static byte[] of(String seed, long i, int min, int max) {
        MessageDigest sha = sha256();
        long u = ByteBuffer.wrap(digest(sha, seed + "/" + i)).getInt() & 0xFFFFFFFFL;
        int size = min + (int) (u % (max - min + 1));
        byte[] out = new byte[size];
        for (int at = 0, block = 0; at < size; at += 32, block++) {
            System.arraycopy(digest(sha, seed + "/" + i + "/" + block), 0, out, at, Math.min(32, size - at));
        }
        return out;
    }

    static String hex(byte[] data) {
        StringBuilder s = new StringBuilder();
        for (byte b : digest(sha256(), data)) {
            s.append(Character.forDigit((b >> 4) & 15, 16)).append(Character.forDigit(b & 15, 16));
        }
        return s.toString();
    }

    private static byte[] digest(MessageDigest sha, Object in) {
        return sha.digest(in instanceof byte[] ? (byte[]) in : in.toString()
            .getBytes(StandardCharsets.UTF_8));
    }

    private static MessageDigest sha256() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }
}
