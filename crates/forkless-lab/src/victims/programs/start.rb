# The Ruby victim: ruby start.rb MIB PROGRAM; orders as parent.c takes them, one for each way to start a program.
memory = 'x' * (ARGV[0].to_i << 20)
program = ARGV[1]
now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) }
ways = {
  'system' => -> { system(program) },
  'spawn' => -> { Process.wait(spawn(program)) },
  'backticks' => -> { `#{program}` },
  'fork_exec' => -> { Process.wait(fork { exec(program) }) },
}
$stdout.sync = true
puts 'ready'
while (order = $stdin.gets)
  way, count = order.split
  times = Array.new(count.to_i) do
    start = now.call
    ways.fetch(way).call
    took = now.call - start
    raise "#{way}: #{$?}" unless $?.success?
    took
  end
  puts times.join(' ')
end
memory.clear
