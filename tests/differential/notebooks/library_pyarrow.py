"""Columns and files (pyarrow)."""

# %%
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

table = pa.table({'n': [1, 2, 3, None], 's': ['a', 'b', 'a', 'c']})
table.schema

# %%
pc.sum(table['n']).as_py(), pc.value_counts(table['s']).to_pylist()

# %%
pq.write_table(table, 'table.parquet')
back = pq.read_table('table.parquet', columns=['s'])
back.num_rows

# %%
table = table.append_column('double', pc.multiply(table['n'], 2))
table.to_pydict()

# %%
frame = table.to_pandas()
frame.dtypes

# %%
batch = table.to_batches()[0]
batch.slice(1, 2).to_pylist()

# %%
schema = pa.schema([pa.field('when', pa.timestamp('s')), pa.field('tags', pa.list_(pa.string()))])
pa.Table.from_pylist([{'when': 0, 'tags': ['x']}], schema)['tags'][0]

# %%
table.column('missing')
