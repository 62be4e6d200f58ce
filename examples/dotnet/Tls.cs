// For connection strings without the emulator flag, which the SDK connects to with TLS, on port 5671. The
// broker's certificate has to be trusted: `peeklock tls` says how. Where the machine's trust must not be
// changed, SERVICEBUS_CA_FILE names the authority, and it is trusted by this client alone.

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
            // Any other port than 5671; a port in the connection string is not looked at with TLS.
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
