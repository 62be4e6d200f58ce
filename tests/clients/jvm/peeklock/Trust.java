package peeklock;

import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;

/**
 * Trusts the broker's own authority in this JVM, as keytool and -Djavax.net.ssl.trustStore would.
 * It must come first: the JVM reads these properties once, with the first use of TLS or HTTP.
 */
public final class Trust {
    private Trust() {
    }

    public static void theBrokersAuthority() throws Exception {
        KeyStore trusted = KeyStore.getInstance("PKCS12");
        trusted.load(null, null);
        try (var pem = Files.newInputStream(Path.of(System.getenv("PEEKLOCK_CA_FILE")))) {
            Certificate authority = CertificateFactory.getInstance("X.509").generateCertificate(pem);
            trusted.setCertificateEntry("peeklock", authority);
        }
        Path file = Files.createTempFile("peeklock-trust", ".p12");
        file.toFile().deleteOnExit();
        try (var out = Files.newOutputStream(file)) {
            trusted.store(out, "changeit".toCharArray());
        }
        System.setProperty("javax.net.ssl.trustStore", file.toString());
        System.setProperty("javax.net.ssl.trustStorePassword", "changeit");
        System.setProperty("javax.net.ssl.trustStoreType", "PKCS12");
    }
}
