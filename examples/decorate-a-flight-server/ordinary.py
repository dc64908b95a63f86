"""An ordinary Flight client: pyarrow alone, nothing of ours. Argument: the server's port."""

import sys

import pyarrow.compute as pc
import pyarrow.flight as flight

with flight.connect(f"grpc://127.0.0.1:{sys.argv[1]}") as client:
    info = client.get_flight_info(flight.FlightDescriptor.for_path("flights"))
    print("the endpoint's locations:", info.endpoints[0].locations)
    table = client.do_get(info.endpoints[0].ticket).read_all()
    print(f"read {table.num_rows} rows; mean delay {pc.mean(table['delay']).as_py():.2f} minutes")
