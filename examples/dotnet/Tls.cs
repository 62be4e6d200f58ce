// Options for connection strings without the emulator flag. The SDK then uses TLS and port 5671, and must trust
// the broker's certificate authority: `peeklock tls` prints how. If the machine's certificate store must not be
// changed, set SERVICEBUS_CA_FILE to the file of the authority. Then only this client trusts it.

using System.Net.Security;
using System.Security.Cryptography.X509Certificates;
using Azure.Messaging.ServiceBus;

internal static class Tls
{
    public static ServiceBusClientOptions Options()
    {
        var options = new ServiceBusClientOptions();
        if (Environment.GetEnvironmentVariable("SERVICEBUS_TLS_ENDPOINT") is { } endpoint)
        {
            // A port other than 5671. With TLS the SDK ignores the port in the connection string.
            options.CustomEndpointAddress = new Uri(endpoint);
        }

        if (Environment.GetEnvironmentVariable("SERVICEBUS_CA_FILE") is { } file)
        {
            var authority = X509Certificate2.CreateFromPem(File.ReadAllText(file));
            options.CertificateValidationCallback = (_, certificate, chain, errors) =>
            {
                if (certificate is null || chain is null
                    || errors.HasFlag(SslPolicyErrors.RemoteCertificateNameMismatch))
                {
                    return false;
                }

                chain.ChainPolicy.TrustMode = X509ChainTrustMode.CustomRootTrust;
                chain.ChainPolicy.CustomTrustStore.Add(authority);
                return chain.Build(new X509Certificate2(certificate));
            };
        }

        return options;
    }
}
