"""A program in cells: records, functions over names, a report."""

# %%
stock = {}
orders = []
log = orders

# %%
def add(item, count=1, *, price):
    entry = stock.setdefault(item, {'count': 0, 'price': price})
    entry['count'] += count
    orders.append(('in', item, count))

# %%
add('pen', 10, price=1.5)
add('book', 2, price=12)
add('pen', 5, price=1.5)
stock

# %%
def take(item, count):
    if stock[item]['count'] < count:
        raise LookupError(f'only {stock[item]["count"]} of {item}')
    stock[item]['count'] -= count
    log.append(('out', item, count))
    return count * stock[item]['price']


income = take('pen', 4) + take('book', 1)
income

# %%
take('book', 9)

# %%
log is orders, len(log)

# %%
actions = {name: globals()[name] for name in ('add', 'take')}
sorted(actions), actions['take'] is take

# %%
rate = globals().get('tax_rate', 0.19)
rate

# %%
tax_rate = 0.07

# %%
rate = globals().get('tax_rate', 0.19)
rate, 'tax_rate' in globals()

# %%
formula = 'income * (1 + tax_rate)'
round(eval(formula), 2)

# %%
for item, entry in stock.items():
    entry['worth'] = entry['count'] * entry['price']
total = sum(entry['worth'] for entry in stock.values())
total

# %%
exec('bonus = total // 10')
bonus
