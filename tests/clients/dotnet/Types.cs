using System.Globalization;
using System.Text.Json;
using System.Xml;
using Azure.Messaging.ServiceBus;

namespace Peeklock;

/// <summary>Every property and type the SDK can express, there and back.</summary>
public static class Types
{
    private sealed record Row(string Name, string Section, string Type, string Value);

    private static readonly Dictionary<string, Func<string, object?>> Values = new()
    {
        ["string"] = text => text,
        ["boolean"] = text => text == "true",
        ["byte"] = text => sbyte.Parse(text, CultureInfo.InvariantCulture),
        ["ubyte"] = text => byte.Parse(text, CultureInfo.InvariantCulture),
        ["short"] = text => short.Parse(text, CultureInfo.InvariantCulture),
        ["ushort"] = text => ushort.Parse(text, CultureInfo.InvariantCulture),
        ["int"] = text => int.Parse(text, CultureInfo.InvariantCulture),
        ["uint"] = text => uint.Parse(text, CultureInfo.InvariantCulture),
        ["long"] = text => long.Parse(text, CultureInfo.InvariantCulture),
        ["ulong"] = text => ulong.Parse(text, CultureInfo.InvariantCulture),
        ["float"] = text => float.Parse(text, CultureInfo.InvariantCulture),
        ["double"] = text => double.Parse(text, CultureInfo.InvariantCulture),
        ["char"] = text => text[0],
        ["timestamp"] = text => DateTimeOffset.Parse(text, CultureInfo.InvariantCulture).UtcDateTime,
        ["uuid"] = text => Guid.Parse(text),
        ["null"] = _ => null,
        ["com.microsoft:timespan"] = text => XmlConvert.ToTimeSpan(text),
        ["com.microsoft:datetime-offset"] = text => DateTimeOffset.Parse(text, CultureInfo.InvariantCulture),
        ["com.microsoft:uri"] = text => new Uri(text),
    };

    private static readonly string[] SystemRows =
    [
        "message-id", "correlation-id", "subject", "content-type", "to", "reply-to", "session-id",
        "reply-to-session-id", "partition-key", "time-to-live", "body",
    ];

    public static async Task RoundTrip(Broker broker)
    {
        var rows = Rows(broker);
        string Text(string name) => rows[name].Value;
        var message = new ServiceBusMessage(Convert.FromHexString(Text("body")))
        {
            MessageId = Text("message-id"),
            CorrelationId = Text("correlation-id"),
            Subject = Text("subject"),
            ContentType = Text("content-type"),
            To = Text("to"),
            ReplyTo = Text("reply-to"),
            SessionId = Text("session-id"),
            ReplyToSessionId = Text("reply-to-session-id"),
            PartitionKey = Text("partition-key"),
            TimeToLive = XmlConvert.ToTimeSpan(Text("time-to-live")),
        };
        var own = rows.Values.Where(row => row.Section == "application-properties" && Values.ContainsKey(row.Type)).ToList();
        foreach (var row in own)
        {
            message.ApplicationProperties[row.Name] = Values[row.Type](row.Value);
        }

        var written = SystemRows.Concat(own.Select(row => row.Name)).Order(StringComparer.Ordinal);
        message.ApplicationProperties["written"] = string.Join(",", written);
        await broker.PutAsync(broker.TypesQueue, "QueueDescription", ("MaxDeliveryCount", 100));
        await using (var client = Moves.Connect(broker))
        {
            await Moves.SendMessagesAsync(client, broker.TypesQueue, [message]);
        }

        await Read(broker, broker.TypesQueue);
    }

    public static async Task Read(Broker broker, string queue)
    {
        await using var client = Moves.Connect(broker);
        await using var receiver = client.CreateReceiver(queue);
        var message = await Moves.ReceiveOneAsync(receiver);
        await receiver.AbandonMessageAsync(message);
        var rows = Rows(broker);
        var found = new Dictionary<string, object>(message.ApplicationProperties);
        var written = (string)found["written"];
        found.Remove("written");
        foreach (var name in written.Split(','))
        {
            var row = rows[name];
            if (row.Section == "application-properties")
            {
                Expect.That(found.Remove(name, out var value), $"{name} is there");
                if (Values.TryGetValue(row.Type, out var parse))
                {
                    Expect.Equal(parse(row.Value), value, name);
                }
            }
            else
            {
                Expect.Equal(row.Value, SystemText(message, name), name);
            }
        }

        Expect.Equal(0, found.Count, "properties nobody wrote");
    }

    private static string SystemText(ServiceBusReceivedMessage message, string name) => name switch
    {
        "message-id" => message.MessageId,
        "correlation-id" => message.CorrelationId,
        "subject" => message.Subject,
        "content-type" => message.ContentType,
        "to" => message.To,
        "reply-to" => message.ReplyTo,
        "session-id" => message.SessionId,
        "reply-to-session-id" => message.ReplyToSessionId,
        "partition-key" => message.PartitionKey,
        "time-to-live" => XmlConvert.ToString(message.TimeToLive),
        "body" => Convert.ToHexString(message.Body.ToArray()).ToLowerInvariant(),
        _ => throw new InvalidOperationException($"no such row: {name}"),
    };

    private static Dictionary<string, Row> Rows(Broker broker)
    {
        using var document = JsonDocument.Parse(File.ReadAllText(broker.TypesFile));
        string Field(JsonElement row, string name) => row.GetProperty(name).GetString()!;
        return document.RootElement.GetProperty("rows").EnumerateArray()
            .Select(row => new Row(Field(row, "name"), Field(row, "section"), Field(row, "type"), Field(row, "value")))
            .ToDictionary(row => row.Name);
    }
}
