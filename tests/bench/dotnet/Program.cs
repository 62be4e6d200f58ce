// Measures a queue through the stock .NET SDK. Reads commands from standard input, one a line, and answers each with a
// line: "one N" with the microseconds of N cycles of send, receive and complete; "processor N" with the seconds that a
// processor with 16 calls needs for N messages.
using System.Diagnostics;
using Azure.Messaging.ServiceBus;

const int Calls = 16;
const int BatchSize = 500;
var body = new byte[1024];
await using var client = new ServiceBusClient(args[0]);
await using var sender = client.CreateSender(args[1]);
await using var receiver = client.CreateReceiver(args[1]);

while (Console.ReadLine() is { } line)
{
    var words = line.Split(' ');
    var count = int.Parse(words[1]);
    Console.WriteLine(words[0] == "one" ? await OneAtATime(count) : await Processor(count));
}

async Task<string> OneAtATime(int count)
{
    var took = new List<long>();
    for (var number = 0; number < count; number++)
    {
        var watch = Stopwatch.StartNew();
        await sender.SendMessageAsync(new ServiceBusMessage(body));
        var message = await receiver.ReceiveMessageAsync();
        await receiver.CompleteMessageAsync(message);
        took.Add(watch.ElapsedTicks * 1_000_000 / Stopwatch.Frequency);
    }
    return string.Join(' ', took);
}

async Task<string> Processor(int count)
{
    for (var sent = 0; sent < count; sent += BatchSize)
    {
        var size = Math.Min(BatchSize, count - sent);
        await sender.SendMessagesAsync(Enumerable.Range(0, size).Select(_ => new ServiceBusMessage(body)));
    }
    var left = count;
    var done = new TaskCompletionSource();
    var options = new ServiceBusProcessorOptions { MaxConcurrentCalls = Calls };
    await using var processor = client.CreateProcessor(args[1], options);
    processor.ProcessMessageAsync += async one =>
    {
        await one.CompleteMessageAsync(one.Message);
        if (Interlocked.Decrement(ref left) == 0) done.SetResult();
    };
    processor.ProcessErrorAsync += error =>
    {
        Console.Error.WriteLine(error.Exception);
        return Task.CompletedTask;
    };
    var watch = Stopwatch.StartNew();
    await processor.StartProcessingAsync();
    await done.Task;
    var seconds = watch.Elapsed.TotalSeconds;
    await processor.StopProcessingAsync();
    return seconds.ToString(System.Globalization.CultureInfo.InvariantCulture);
}
