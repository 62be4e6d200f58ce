// Runs the tests of the xUnit recipe without xUnit, where NuGet cannot be reached: as much of its names as the recipe
// uses, and a program that calls each test as xUnit does.

using System.Reflection;

namespace Xunit
{
    [AttributeUsage(AttributeTargets.Method)]
    public sealed class FactAttribute : Attribute
    {
    }

    public interface IAsyncLifetime
    {
        Task InitializeAsync();

        Task DisposeAsync();
    }

    public static class Assert
    {
        public static void Equal(string? expected, string? actual)
        {
            if (expected != actual)
            {
                throw new InvalidOperationException($"expected {expected}, not {actual}");
            }
        }
    }
}

namespace Orders.Tests
{
    using Xunit;

    public static class Runner
    {
        public static async Task Main()
        {
            var tests = typeof(OrdersTests).GetMethods()
                .Where(one => one.GetCustomAttribute<FactAttribute>() is not null);
            await Task.WhenAll(tests.Select(RunAsync));
        }

        private static async Task RunAsync(MethodInfo test)
        {
            var instance = new OrdersTests();
            await instance.InitializeAsync();
            await (Task)test.Invoke(instance, null)!;
            await instance.DisposeAsync();
            Console.WriteLine($"passed: {test.Name}");
        }
    }
}
