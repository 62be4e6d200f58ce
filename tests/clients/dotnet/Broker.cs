using System.Security;
using System.Text;
using System.Text.Json;

namespace Peeklock;

/// <summary>The broker under test, as the runner describes it; entities over plain HTTP.</summary>
public sealed class Broker
{
    private const string ServiceBus = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect";
    private const string Instance = "http://www.w3.org/2001/XMLSchema-instance";

    private static readonly HttpClient Http = new();
    private readonly string _run = Variable("PEEKLOCK_RUN");
    private int _names;

    public string ConnectionString { get; } = Variable("PEEKLOCK_CONNECTION_STRING");
    public string AdminConnectionString { get; } = Variable("PEEKLOCK_ADMIN_CONNECTION_STRING");
    public string TlsConnectionString { get; } = Variable("PEEKLOCK_TLS_CONNECTION_STRING");
    public string TypesFile { get; } = Variable("PEEKLOCK_TYPES_FILE");
    public string TypesQueue => $"{_run}-types-dotnet";
    public static string StrictQueue => Variable("PEEKLOCK_STRICT_QUEUE");
    public int AmqpPort { get; } = int.Parse(Variable("PEEKLOCK_AMQP_PORT"));

    private string Address { get; } =
        $"http://{Variable("PEEKLOCK_HOST")}:{Variable("PEEKLOCK_HTTP_PORT")}";

    public static string Variable(string name) =>
        Environment.GetEnvironmentVariable(name) ?? throw new InvalidOperationException($"{name} is not set");

    /// <summary>The strict broker, with a key for SEND, LISTEN or MANAGE.</summary>
    public static string Strict(string claim) => Variable($"PEEKLOCK_STRICT_{claim}_CONNECTION_STRING");

    public string Name(string what) => $"{_run}-{what}-{++_names}";

    public async Task<string> QueueAsync(params (string Name, object Value)[] properties)
    {
        var name = Name("queue");
        await PutAsync(name, "QueueDescription", properties);
        return name;
    }

    public async Task<string> TopicAsync(params string[] subscriptions)
    {
        var name = Name("topic");
        await PutAsync(name, "TopicDescription");
        foreach (var subscription in subscriptions)
        {
            await PutAsync($"{name}/Subscriptions/{subscription}", "SubscriptionDescription");
        }

        return name;
    }

    public Task PutAsync(string path, string kind, params (string Name, object Value)[] properties)
    {
        var elements = new StringBuilder();
        foreach (var (name, value) in properties)
        {
            var text = value is bool flag ? (flag ? "true" : "false") : value.ToString();
            elements.Append($"<{name}>{SecurityElement.Escape(text)}</{name}>");
        }

        return PutTextAsync(path, $"<{kind} xmlns=\"{ServiceBus}\">{elements}</{kind}>");
    }

    /// <summary>Have a subscription take what one filter lets through, and nothing else.</summary>
    public async Task OnlyRuleAsync(string topic, string subscription, string kind, string filter)
    {
        var rules = $"{topic}/Subscriptions/{subscription}/Rules";
        await PutTextAsync(
            $"{rules}/only",
            $"<RuleDescription xmlns=\"{ServiceBus}\" xmlns:i=\"{Instance}\">"
            + $"<Filter i:type=\"{kind}\">{filter}</Filter></RuleDescription>");
        var answer = await Http.DeleteAsync($"{Address}/{rules}/$Default?api-version=2021-05");
        answer.EnsureSuccessStatusCode();
    }

    /// <summary>Move the broker's clock: nothing sleeps until a lock expires.</summary>
    public async Task<DateTimeOffset> AdvanceAsync(TimeSpan by)
    {
        var body = JsonSerializer.Serialize(new { advance_ms = (long)by.TotalMilliseconds });
        var content = new StringContent(body, Encoding.UTF8, "application/json");
        var answer = await Http.PostAsync($"{Address}/$peeklock/clock", content);
        answer.EnsureSuccessStatusCode();
        using var document = JsonDocument.Parse(await answer.Content.ReadAsStringAsync());
        return DateTimeOffset.FromUnixTimeMilliseconds(document.RootElement.GetProperty("now_ms").GetInt64());
    }

    public Task<DateTimeOffset> NowAsync() => AdvanceAsync(TimeSpan.Zero);

    public async Task<double> ConnectionsAsync()
    {
        var text = await Http.GetStringAsync($"{Address}/metrics");
        var line = text.Split('\n').First(one => one.StartsWith("peeklock_connections ", StringComparison.Ordinal));
        return double.Parse(line.Split(' ')[1], System.Globalization.CultureInfo.InvariantCulture);
    }

    /// <summary>Have the runner restart the broker.</summary>
    public void Restart()
    {
        Console.WriteLine("{\"control\": \"restart\"}");
        var answer = Console.ReadLine();
        Expect.Equal("restarted", answer, "the runner's answer");
    }

    private async Task PutTextAsync(string path, string description)
    {
        var entry = "<entry xmlns=\"http://www.w3.org/2005/Atom\"><content type=\"application/xml\">"
            + description + "</content></entry>";
        var content = new StringContent(entry, Encoding.UTF8, "application/atom+xml");
        var answer = await Http.PutAsync($"{Address}/{path}?api-version=2021-05", content);
        var text = await answer.Content.ReadAsStringAsync();
        Expect.That(answer.IsSuccessStatusCode, $"PUT {path}: {answer.StatusCode} {text}");
    }
}
