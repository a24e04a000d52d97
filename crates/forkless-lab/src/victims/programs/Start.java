// The Java victim: java -Djdk.lang.Process.launchMechanism=FORK Start MIB PROGRAM; orders as parent.c takes them.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;

class Start {
    public static void main(String[] args) throws Exception {
        // 256 KiB each: larger arrays take whole regions of the heap, and waste half of them.
        byte[][] memory = new byte[4 * Integer.parseInt(args[0])][];
        for (int n = 0; n < memory.length; n++) {
            memory[n] = new byte[1 << 18];
            Arrays.fill(memory[n], (byte) 1);
        }
        ProcessBuilder builder = new ProcessBuilder(args[1]).redirectErrorStream(true);
        builder.redirectOutput(ProcessBuilder.Redirect.DISCARD);
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            StringBuilder times = new StringBuilder();
            for (int n = Integer.parseInt(order.split(" ")[1]); n > 0; n--) {
                long begin = System.nanoTime();
                int status = builder.start().waitFor();
                times.append(System.nanoTime() - begin).append(n > 1 ? " " : "");
                if (status != 0) throw new IllegalStateException("exit status " + status);
            }
            System.out.println(times);
        }
        // Kept until here.
        if (memory[0][0] != 1) throw new IllegalStateException();
    }
}
