// The control API of a running broker, as far as the tests need it: a namespace for each test, waiting, the clock.
//
//   peeklock serve --storage memory:
//   cd examples/xunit && dotnet test

using System.Net.Http;
using System.Text;
using System.Text.Json;

namespace Orders.Tests;

/// <summary>A namespace with its own entities, key and clock. Tests in parallel do not see each other's messages.</summary>
public sealed class PeeklockNamespace : IAsyncDisposable
{
    private static readonly HttpClient Http = new();
    private static readonly string Address =
        Environment.GetEnvironmentVariable("PEEKLOCK_URL") ?? "http://localhost:5300";

    private readonly string name;

    private PeeklockNamespace(string name, string connectionString)
    {
        this.name = name;
        ConnectionString = connectionString;
    }

    public string ConnectionString { get; }

    public static async Task<PeeklockNamespace> CreateAsync(string topology)
    {
        var created = await RequestAsync(HttpMethod.Post, "/namespaces", $$"""{"topology": {{topology}}}""");
        return new PeeklockNamespace(
            created.GetProperty("name").GetString()!, created.GetProperty("connection_string").GetString()!);
    }

    /// <summary>Waits until a condition holds, without polling: see docs/control-api.md.</summary>
    public Task WaitAsync(string condition) =>
        RequestAsync(HttpMethod.Post, $"/namespaces/{name}/wait", $$"""{"conditions": [{{condition}}]}""");

    public Task AdvanceClockAsync(TimeSpan time) =>
        RequestAsync(HttpMethod.Post, $"/namespaces/{name}/clock/advance", $$"""{"seconds": {{time.TotalSeconds}}}""");

    public async ValueTask DisposeAsync() => await RequestAsync(HttpMethod.Delete, $"/namespaces/{name}");

    private static async Task<JsonElement> RequestAsync(HttpMethod method, string path, string body = "")
    {
        using var request = new HttpRequestMessage(method, $"{Address}/$peeklock/v1{path}")
        {
            Content = new StringContent(body, Encoding.UTF8, "application/json"),
        };
        using var answer = await Http.SendAsync(request);
        var text = await answer.Content.ReadAsStringAsync();
        if (!answer.IsSuccessStatusCode)
        {
            throw new InvalidOperationException($"{method} {path}: {text}");
        }

        return JsonDocument.Parse(text).RootElement;
    }
}
